"""The page: set a node of the graph and see the picture change; `intervae serve RUN`.

app.py: routes. access.py: who may call them. schemas.py: requests and answers. served_runs.py: runs
that are loaded in the background and answer one query at a time. describe.py: what a run can do.
counterfactuals.py, transitions.py, clips.py, latents.py: the queries. repeat_code.py: the lines
that repeat a view. results.py: tables of `results/`. export.py: the same page without a server.
launch.py: port, address and start. static/: the page itself.
"""
