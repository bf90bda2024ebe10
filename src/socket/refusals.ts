/**
 * Refusals as JSON-RPC errors.
 * @module
 */
import { KINDS, type Refusal } from "../lease/errors.ts";
import { METHOD_NOT_FOUND } from "./codec.ts";
import type { ErrorObject } from "./protocol.ts";
import { suggest } from "./suggest.ts";

/** `refusal` as the `error` of an answer. */
export function errorObject(refusal: Refusal): ErrorObject {
  const { kind, message, retryAfterMs, holder } = refusal;
  return {
    code: KINDS[kind].code,
    message,
    data: {
      kind,
      ...(retryAfterMs !== undefined && { retry_after_ms: retryAfterMs }),
      ...(holder !== undefined && { holder }),
    },
  };
}

/** The error for a method that is none of `methods`. */
export function unknownMethod(method: string, methods: readonly string[]): ErrorObject {
  const near = suggest(method, methods);
  const name = JSON.stringify(method.length > 64 ? `${method.slice(0, 64)}…` : method);
  const hint = near.length > 0
    ? `did you mean ${near.join(" or ")}?`
    : `known: ${methods.join(", ")}`;
  return { code: METHOD_NOT_FOUND, message: `There is no method ${name}; ${hint}` };
}
