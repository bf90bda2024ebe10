/**
 * The faults: what each does and how it is healed. docs/faults.md tells what the agent does about them.
 * @module
 */
import { AGENT_FAULTS } from "./agents.ts";
import { CLOCK_FAULTS } from "./clocks.ts";
import type { FaultKind } from "./kind.ts";
import { NETWORK_FAULTS } from "./network.ts";
import { OPERATOR_FAULTS } from "./records.ts";
import { SERVER_FAULTS } from "./servers.ts";

export type { FaultKind, Injected } from "./kind.ts";

/** Every kind of fault. */
export const FAULTS: readonly FaultKind[] = [
  ...SERVER_FAULTS,
  ...NETWORK_FAULTS,
  ...AGENT_FAULTS,
  ...CLOCK_FAULTS,
  ...OPERATOR_FAULTS,
];
