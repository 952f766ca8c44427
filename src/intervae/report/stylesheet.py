"""Stylesheet of the report: one column of text, light and dark mode, black on white in print."""

STYLE = """
:root{--ink:#1f2328;--faint:#59636e;--rule:#d1d9e0;--paper:#ffffff;--card:#f6f8fa;
  --blue:#0969a8;--orange:#b35900;--warn:#fff4e0;--warn-rule:#d69a3a;
--good:#e8f5ea;--good-rule:#62a36d;color-scheme:light dark}
@media (prefers-color-scheme:dark){:root{--ink:#e6edf3;--faint:#9aa4af;--rule:#3a434d;
  --paper:#0f1419;--card:#181e25;--blue:#5cb3f0;--orange:#f0a050;
--warn:#2e2412;--warn-rule:#a87a2c;--good:#13261a;--good-rule:#3e7a4b}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);
  font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif}
main{max-width:60rem;margin:0 auto;padding:2.5rem 1.25rem 4rem}
h1{font-size:1.75rem;line-height:1.25;margin:0 0 .3rem}
h2{font-size:1.25rem;margin:2.6rem 0 .7rem;padding-bottom:.3rem;
  border-bottom:1px solid var(--rule)}
h3{font-size:1.05rem;margin:0 0 .4rem}
table+h3{margin-top:1.2rem}
p{margin:.5rem 0}
.lead,.note,figcaption{color:var(--faint)}
.note,figcaption{font-size:.875rem}
table{border-collapse:collapse;font-size:.9rem;width:100%}
th,td{text-align:left;vertical-align:top;padding:.4rem .7rem .4rem 0;
  border-bottom:1px solid var(--rule)}
thead th{font-weight:600;color:var(--faint);vertical-align:bottom}
td.number,th.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.scroll{overflow-x:auto}
td.words{min-width:12rem}
.name{font-weight:600;overflow-wrap:anywhere}
.acts-word{color:var(--blue);font-weight:600}
.shows-word{color:var(--orange);font-weight:600}
.diagnostic{background:var(--warn)}
ul.diagnostics{list-style:none;padding:0;margin:.6rem 0}
ul.diagnostics li{background:var(--warn);border-left:4px solid var(--warn-rule);
  padding:.5rem .8rem;margin:.45rem 0;border-radius:0 6px 6px 0}
ul.diagnostics b{display:block;font-size:.8rem;letter-spacing:.02em;color:var(--faint);
  font-weight:600}
.fine{background:var(--good);border-left:4px solid var(--good-rule);padding:.5rem .8rem;
  border-radius:0 6px 6px 0}
article{background:var(--card);border:1px solid var(--rule);border-radius:10px;
  padding:1rem 1.2rem;margin:1rem 0;break-inside:avoid}
.two{display:flex;flex-wrap:wrap;gap:1rem 2rem;align-items:flex-start}
.two>div{flex:1 1 19rem}
dl.facts{display:grid;grid-template-columns:auto 1fr;gap:.15rem 1rem;margin:.6rem 0;
  font-size:.9rem}
dl.facts dt{color:var(--faint)}
dl.facts dd{margin:0;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
figure{margin:1rem 0 0}
table.images{width:auto}
table.images th,table.images td{border:0;padding:.15rem .3rem .15rem 0;vertical-align:bottom;
  text-align:center}
table.images th{font-weight:400;color:var(--faint);text-align:right;vertical-align:middle;
  font-size:.85rem;white-space:nowrap}
table.images span{display:block;font-size:.8rem;color:var(--faint);max-width:7rem;
  overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
table.images img{width:5.2rem;height:auto;image-rendering:pixelated;display:block;
  border:1px solid var(--rule);background:#fff}
svg{max-width:100%;height:auto;display:block}
svg text{fill:var(--ink);font:12px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;
  text-anchor:middle}
svg .head,svg .tick{fill:var(--faint);font-size:11px}
svg .node rect{fill:var(--card);stroke:var(--ink);stroke-width:1.1}
svg .node text{font-size:13px}
svg .edge path{fill:none}
svg .acts path{stroke:var(--blue)}svg .shows path{stroke:var(--orange)}
  svg .same path,svg .open path{stroke:var(--faint)}
svg marker.acts path{fill:var(--blue);stroke:none}
svg marker.shows path{fill:var(--orange);stroke:none}svg marker.same path{fill:var(--faint);
  stroke:none}
svg .under{fill:var(--paper)}
svg .frame{fill:none;stroke:var(--rule)}
svg .plot circle,svg circle{fill:var(--faint);opacity:.45}
svg .curve{fill:none;stroke:var(--blue);stroke-width:2.5;stroke-linejoin:round}
svg .tick[text-anchor=end]{text-anchor:end}
details summary{cursor:pointer;color:var(--faint)}
code{font:.85em ui-monospace,SFMono-Regular,Consolas,monospace;overflow-wrap:anywhere}
footer{margin-top:3rem;color:var(--faint);font-size:.85rem;border-top:1px solid var(--rule);
  padding-top:.8rem}
@media print{:root{--ink:#000;--faint:#444;--rule:#bbb;--paper:#fff;--card:#fff;
  --blue:#0969a8;--orange:#a65300;--warn:#fff;--good:#fff;
color-scheme:light}article{break-inside:auto}body{font-size:10.5pt}main{max-width:none;
  padding:0}h2,h3{break-after:avoid}tr,li,figure{break-inside:avoid}.scroll{overflow:visible}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
"""
