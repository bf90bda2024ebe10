/**
 * The steps of `agent guard`: checks, the grant, the command.
 * @module
 */
import { openSocket } from "../../client/connect.ts";
import { AgentError } from "../../client/errors.ts";
import { absoluteSocketPath } from "../../client/socket_path.ts";
import { expectMove } from "../../sys/cgroup.ts";
import { checkStore, socketOf } from "../agent.ts";
import { formatDuration } from "../duration.ts";
import { Failure } from "../failure.ts";
import { say } from "../output.ts";
import { guardRefusalText } from "../refusal.ts";
import { commandOf, findCommand } from "./command.ts";
import type { GuardedCommand } from "./command.ts";
import { ANSWER_MS, requestLocked } from "./locked_grant.ts";
import type { LockedGrant } from "./locked_grant.ts";
import { killAfterMs } from "./plan.ts";
import { Signals } from "./signals.ts";
import { announceWait } from "./waiting.ts";
import { WatchdogLink } from "./watchdog_link.ts";
import { Wrapper } from "./wrapper.ts";

/** What `agent guard` was asked for. Durations are in milliseconds. */
export interface GuardRequest {
  readonly store: string;
  /** How many of the last arguments are the command. */
  readonly commandLength: number;
  readonly wait?: number;
  readonly waitLease?: boolean;
  readonly shared?: boolean;
  readonly killAfter?: number;
  readonly unguarded?: string;
  readonly socket?: string;
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** Runs the command under a grant and returns the exit status. */
export async function guard(request: GuardRequest): Promise<number> {
  const { store, env } = request;
  checkStore(store);
  const command = findCommand(request.commandLength, env.PATH);
  const signals = new Signals((signal) => process.exit(128 + signal));
  if (request.unguarded !== undefined) {
    const { runUnguarded } = await import("./unguarded.ts");
    return await runUnguarded({ command, store, reason: request.unguarded, signals });
  }
  const socket = socketOf(request);
  const prepared = expectMove();
  const mark = Buffer.from(crypto.getRandomValues(new Uint8Array(8))).toString("hex");
  // Started first, so that it comes up while the agent is asked.
  const watchdog = new WatchdogLink(mark);
  const grant = await ask(request, socket, command);
  // It listens to what is told of the grant from its first moment.
  const wrapper = new Wrapper({
    command,
    grant,
    shared: request.shared ?? false,
    // As it holds for the command, wherever that goes.
    socket: absoluteSocketPath(socket),
    mark,
    killAfterMs: killAfterOf(request.killAfter ?? null, grant),
    signals,
    watchdog,
  });
  await prepared;
  const { unguarded } = grant.result;
  if (unguarded !== null) {
    const { sayUnguarded } = await import("./unguarded.ts");
    sayUnguarded(store, unguarded, " (the agent is standalone: no other host is kept out)");
  }
  return await wrapper.run();
}

/** What is used of a `--kill-after`: whoever counts on more time for an orderly end must know. */
function killAfterOf(wishedMs: number | null, { ttlMs, result }: LockedGrant): number {
  // A lease that was just proven lasts for about its TTL.
  const wholeMs = ttlMs ?? result.remaining_ms;
  const usedMs = killAfterMs(wishedMs, wholeMs);
  if (wishedMs !== null && usedMs < wishedMs) {
    const [wished, used, whole] = [wishedMs, usedMs, wholeMs].map((ms) =>
      formatDuration(Math.floor(ms))
    );
    say(`--kill-after ${wished} is cut to ${used}, half of the lease's TTL of ${whole}`);
  }
  return usedMs;
}

async function ask(
  request: GuardRequest,
  socket: string,
  command: GuardedCommand,
): Promise<LockedGrant> {
  const { store, wait = 0, env } = request;
  const quiet = wait > 0 ? announceWait({ store, waitMs: wait, socket, env }) : () => {};
  try {
    return await requestLocked(await openSocket({ socket }), {
      method: "guard",
      params: {
        store: request.store,
        wait_ms: request.wait ?? 0,
        wait_lease: request.waitLease ?? false,
        shared: request.shared ?? false,
        pass_lock: true,
        follow: true,
        // The name alone: arguments may be nobody else's business.
        purpose: commandOf(command),
      },
      path: socket,
      withinMs: (request.wait ?? 0) + ANSWER_MS,
    });
  } catch (error) {
    if (error instanceof AgentError) {
      const waited = error.kind === "not_holder" ? request.waitLease : request.wait;
      throw new Failure(guardRefusalText(error, Boolean(waited)), error.exit);
    }
    throw error;
  } finally {
    quiet();
  }
}
