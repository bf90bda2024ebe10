/**
 * What is used of the metrics library, each from its own module: the library as a whole would bring summaries,
 * metrics of the process and a tracing library into the program, a third of a megabyte.
 * @module
 */
import type * as library from "prom-client";
import counter from "prom-client/lib/counter.js";
import gauge from "prom-client/lib/gauge.js";
import histogram from "prom-client/lib/histogram.js";
import registry from "prom-client/lib/registry.js";

// The types are the library's as a whole: its modules have none of their own.
export const Counter = counter as unknown as typeof library.Counter;
export type Counter<L extends string = string> = library.Counter<L>;
export const Gauge = gauge as unknown as typeof library.Gauge;
export const Histogram = histogram as unknown as typeof library.Histogram;
export type Histogram = library.Histogram;
export const Registry = registry as unknown as typeof library.Registry;
