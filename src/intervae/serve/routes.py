"""Routes of the API. They hold no state: do() is in the request.

Queries are imported when they are first asked, so that the page is there before torch is.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi import Path as PathParameter
from fastapi.responses import Response
from starlette.exceptions import HTTPException

import intervae
from intervae.serve import answers, schemas
from intervae.serve.results import ResultsFolder
from intervae.serve.served_runs import ServedRun, ServedRuns

Number = Annotated[int, PathParameter(ge=0, le=2**31)]
Start = Annotated[int, Query(ge=0, le=2**31)]
PageSize = Annotated[int, Query(ge=1, le=schemas.MAX_FRAMES)]


def find_run(runs: ServedRuns, number: int) -> ServedRun:
    if number >= len(runs):
        raise HTTPException(404, f"there is no run {number}; there are {len(runs)}.")
    return runs.runs[number]


# ---- runs and pictures -------------------------------------------------------------------------
def run_routes(runs: ServedRuns, results: ResultsFolder) -> APIRouter:
    router = APIRouter(tags=["runs"])

    @router.get("/status")
    async def status() -> schemas.StatusAnswer:
        """How many runs there are, and how many are still being loaded."""
        return schemas.StatusAnswer(
            version=intervae.__version__, runs=len(runs), loading=runs.loading
        )

    @router.get("/runs")
    async def list_runs() -> schemas.RunsAnswer:
        """All runs with what they can do; a damaged one with its error."""
        return schemas.RunsAnswer(
            version=intervae.__version__,
            runs=[run.description for run in runs.runs],
            results=len(results.tables),
        )

    @router.get("/runs/{number}")
    async def describe(number: Number) -> schemas.RunAnswer:
        """One run: graph, variables, capabilities."""
        return find_run(runs, number).description

    @router.get("/runs/{number}/pictures")
    async def pictures(
        number: Number, start: Start = 0, count: PageSize = 24
    ) -> schemas.PicturesAnswer:
        """Pictures of the test split."""
        return await _ask(runs, number, "browse", "list_pictures", start, count)

    @router.get("/runs/{number}/pairs")
    async def pairs(number: Number, start: Start = 0, count: PageSize = 24) -> schemas.PairsAnswer:
        """Pairs of test pictures before and after an action."""
        return await _ask(runs, number, "browse", "list_pairs", start, count)

    @router.post("/runs/{number}/upload")
    async def upload(number: Number, request: schemas.UploadRequest) -> schemas.UploadAnswer:
        """A picture of one's own at the model's size; nothing is stored."""
        return await _ask(runs, number, "browse", "upload", request)

    return router


async def _ask(runs: ServedRuns, number: int, module: str, query: str, *arguments: Any) -> Any:
    """Answer a query of a run, `serve.MODULE.QUERY(run, *arguments)`, in its queue."""
    run = find_run(runs, number)
    return await run.ask(partial(_call, module, query, run, *arguments))


def _call(module: str, query: str, *arguments: Any) -> Any:
    from intervae.serve import browse, clips, counterfactuals, latents, transitions

    modules = (browse, clips, counterfactuals, latents, transitions)
    by_name = {each.__name__.rpartition(".")[2]: each for each in modules}
    return getattr(by_name[module], query)(*arguments)


# ---- queries -----------------------------------------------------------------------------------
def query_routes(runs: ServedRuns) -> APIRouter:
    router = APIRouter(tags=["queries"])

    @router.post("/runs/{number}/do")
    async def do(
        number: Number, request: schemas.InterventionRequest
    ) -> answers.InterventionAnswer:
        """Pictures under do(): the model's answer, the simulator's truth, values and errors."""
        return await _ask(runs, number, "counterfactuals", "intervene", request)

    @router.post("/runs/{number}/sweep")
    async def sweep(number: Number, request: schemas.SweepRequest) -> answers.SweepAnswer:
        """A picture with one variable set to each of several values."""
        return await _ask(runs, number, "counterfactuals", "sweep", request)

    @router.post("/compare")
    async def compare(request: schemas.CompareRequest) -> answers.CompareAnswer:
        """The same picture and do() in several runs; the spread between them as a map."""
        chosen = [find_run(runs, number) for number in dict.fromkeys(request.runs)]
        for run in chosen:
            run.check_ready()
        first, results = chosen[0], []
        for run in chosen:
            query = partial(_call, "counterfactuals", "compare_one", run, first, request)
            results.append(await run.ask(query))
        join = partial(_call, "counterfactuals", "join_compared", first, request, results)
        return await first.ask(join)

    @router.post("/runs/{number}/act")
    async def act(number: Number, request: schemas.ActRequest) -> answers.ActAnswer:
        """A picture after an action, once or several times."""
        return await _ask(runs, number, "transitions", "act", request)

    @router.post("/runs/{number}/attribute")
    async def attribute(
        number: Number, request: schemas.AttributeRequest
    ) -> answers.AttributeAnswer:
        """The probability of each action between two pictures."""
        return await _ask(runs, number, "transitions", "attribute", request)

    @router.post("/runs/{number}/clip")
    async def clip(number: Number, request: schemas.ClipRequest) -> answers.ClipAnswer:
        """A clip under do() at a frame, and the frames that follow."""
        return await _ask(runs, number, "clips", "clip", request)

    @router.get("/runs/{number}/findings")
    async def findings(number: Number) -> answers.FindingsAnswer:
        """Links between latents and columns; measured once, which takes seconds."""
        run = find_run(runs, number)
        return await run.ask(partial(_call, "latents", "findings", run), slow=True)

    @router.post("/runs/{number}/heat_map")
    async def heat_map(number: Number, request: schemas.HeatMapRequest) -> answers.HeatMapAnswer:
        """Where pictures have what raises (1) or lowers (-1) a latent."""
        return await _ask(runs, number, "latents", "heat_maps", request)

    @router.post("/runs/{number}/traverse")
    async def traverse(number: Number, request: schemas.TraverseRequest) -> answers.TraverseAnswer:
        """A picture with one dim of a latent at several values."""
        return await _ask(runs, number, "latents", "traverse", request)

    @router.post("/runs/{number}/sample")
    async def sample(number: Number, request: schemas.SampleRequest) -> answers.SampleAnswer:
        """Pictures drawn from the model."""
        return await _ask(runs, number, "latents", "sample", request)

    return router


# ---- results -----------------------------------------------------------------------------------
def result_routes(results: ResultsFolder) -> APIRouter:
    router = APIRouter(tags=["results"])

    @router.get("/results")
    def list_results() -> schemas.ResultsAnswer:
        """Tables of measured results."""
        return results.listing()

    @router.get("/results/{number}")
    def table(number: Number) -> schemas.TableAnswer:
        """One table, beside the paper's numbers."""
        if number >= len(results.tables):
            raise HTTPException(404, f"there is no table {number}.")
        return results.table(number)

    @router.get(
        "/results/{number}/figures/{figure}",
        response_class=Response,
        responses={200: {"content": {"image/png": {}}}},
    )
    def figure(number: Number, figure: Number) -> Response:
        """One figure of a table."""
        if number >= len(results.tables) or figure >= len(results.tables[number][2]):
            raise HTTPException(404, f"there is no figure {figure} of table {number}.")
        return Response(results.figure(number, figure), media_type="image/png")

    return router
