// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The style sheet of the status page: one column that fits a phone, and colours for light and dark.
//
// Thread contract: a constant.

#ifndef BASIN_AGGREGATOR_STATUSZ_PAGE_STYLE_H_
#define BASIN_AGGREGATOR_STATUSZ_PAGE_STYLE_H_

namespace basin::aggregator {

inline constexpr char kPageStyle[] = R"(<style>
:root { color-scheme: light dark;
  --page: #f5f6f8; --card: #fff; --ink: #1c2330; --quiet: #5c6675; --rule: #e1e5eb;
  --good: #13703b; --bad: #b3261e; --warm: #8a5300; --accent: #2257c4;
  --part0: #7ea6e8; --part1: #e0942f; --part2: #b9c2cf; }
@media (prefers-color-scheme: dark) { :root {
  --page: #12161d; --card: #1b212b; --ink: #e6eaf0; --quiet: #9aa5b5; --rule: #2d3542;
  --good: #6cd394; --bad: #ff8a80; --warm: #f2b45c; --accent: #8fb5ff;
  --part0: #4f7fd0; --part1: #e6a04a; --part2: #59657a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 72rem; background: var(--page);
  color: var(--ink); font: 15px/1.45 system-ui, "DejaVu Sans", sans-serif; }
a { color: var(--accent); }
h1 { font-size: 1.35rem; margin: 0; }
h2 { font-size: 1.15rem; margin: 0 0 .3rem; overflow-wrap: anywhere; }
h3 { font-size: 1rem; margin: 1.1rem 0 .3rem; overflow-wrap: anywhere; }
h4 { font-size: .85rem; margin: 0 0 .25rem; color: var(--quiet); font-weight: 600; }
p { margin: .25rem 0; }
.quiet { color: var(--quiet); font-weight: 400; }
.good { color: var(--good); } .bad { color: var(--bad); } .warm { color: var(--warm); }
section, .box { background: var(--card); border: 1px solid var(--rule); border-radius: 8px;
  padding: .9rem 1rem; margin: .9rem 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 600; font-size: .8rem; color: var(--quiet); }
th, td { padding: .2rem .9rem .2rem 0; border-bottom: 1px solid var(--rule);
  vertical-align: top; }
tr:last-child td { border-bottom: 0; }
td.name { overflow-wrap: anywhere; min-width: 7rem; }
td.number, th.number { text-align: right; white-space: nowrap; }
td.short { white-space: nowrap; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(15rem, 1fr));
  gap: 1rem; margin: .7rem 0; }
svg { display: block; width: 100%; height: 3.6rem; border-bottom: 1px solid var(--rule); }
polyline { fill: none; stroke: var(--accent); stroke-width: 1.6;
  vector-effect: non-scaling-stroke; }
circle { fill: var(--accent); }
.part0 { fill: var(--part0); } .part1 { fill: var(--part1); } .part2 { fill: var(--part2); }
.key { display: inline-block; width: .7rem; height: .7rem; border-radius: 2px;
  margin-right: .3rem; }
.key.part0 { background: var(--part0); } .key.part1 { background: var(--part1); }
.key.part2 { background: var(--part2); }
.keys span { margin-right: .8rem; white-space: nowrap; font-size: .8rem; color: var(--quiet); }
.range { display: flex; justify-content: space-between; font-size: .8rem; color: var(--quiet); }
.columns { display: grid; gap: 0 2rem;
  grid-template-columns: repeat(auto-fit, minmax(19rem, 1fr)); }
@media (max-width: 32rem) { body { padding: .6rem; font-size: 14px; }
  section, .box { padding: .7rem .75rem; } th, td { padding-right: .6rem; }
  .columns { grid-template-columns: 1fr; } td.name { min-width: 6.5rem; }
  .wide { display: none; } }
</style>)";

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_STATUSZ_PAGE_STYLE_H_
