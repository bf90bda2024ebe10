/**
 * Checks what a request asks with: types, ranges, store codes (but a guard's, which is its first gate);
 * fills in the defaults. Members nobody knows are ignored. Everything refused here is `invalid`, in a
 * sentence that names the parameter.
 * @module
 */
import * as v from "valibot";
import type { Refusal } from "../lease/errors.ts";
import { isStoreCode, notAStoreCode } from "../lease/store_code.ts";
import { MAX_HELD_STORES, type Method, type Methods } from "./protocol.ts";

/**
 * The longest delay of a timer, 24.8 days. A longer wait is cut to it: nobody is there to see the
 * difference.
 */
export const MAX_WAIT_MS = 2_147_483_647;

/** The longest `purpose`: a line or two for a person to read. */
export const MAX_PURPOSE_LENGTH = 1_024;

/** The most `leases` a page holds; some 4 MB of answer, well below the backlog limit. */
export const MAX_PAGE = 10_000;

const DEFAULT_PAGE = 1_000;

const text = v.string("must be a string");

const storeCode = v.pipe(text, v.check(isStoreCode, (issue) => notAStoreCode(issue.input)));

const storeCodes = v.pipe(
  v.array(storeCode, "must be an array of store codes"),
  v.readonly(),
);

const flag = v.boolean("must be true or false");

const waitMs = v.pipe(
  v.number("must be a number of milliseconds"),
  v.finite("must be a finite number of milliseconds"),
  v.minValue(0, "must not be negative"),
  v.transform((ms) => Math.min(ms, MAX_WAIT_MS)),
);

/** Not cut: somebody who asks for a longer one must not believe that it is in force. */
const stepdownMs = v.pipe(
  v.number("must be a number of milliseconds"),
  v.finite("must be a finite number of milliseconds"),
  v.minValue(0, "must not be negative"),
  v.maxValue(MAX_WAIT_MS, `must be at most ${MAX_WAIT_MS} (24.8 days); 0 ends a step-down`),
);

const none = v.object({});
const oneStore = v.object({ store: storeCode });

/** The schema of each method's parameters. */
const SCHEMAS = {
  guard: v.object({
    // Whether it is a store code is a guard's first gate: other refusals come before.
    store: text,
    wait_ms: v.optional(waitMs, 0),
    shared: v.optional(flag, false),
    wait_lease: v.optional(flag, false),
    pass_lock: v.optional(flag, false),
    follow: v.optional(flag, false),
    purpose: v.exactOptional(v.pipe(
      text,
      v.maxLength(MAX_PURPOSE_LENGTH, `must be at most ${MAX_PURPOSE_LENGTH} characters`),
    )),
  }),
  verify: v.object({ token: text, store: storeCode, pass_lock: v.optional(flag, false) }),
  release: v.object({ token: text }),
  held: v.pipe(
    v.object({
      store: v.exactOptional(storeCode),
      stores: v.exactOptional(
        v.pipe(
          v.array(v.unknown(), "must be an array of store codes"),
          v.maxLength(MAX_HELD_STORES, `must be at most ${MAX_HELD_STORES} store codes`),
          storeCodes,
        ),
      ),
    }),
    v.check(
      (params) => (params.store === undefined) !== (params.stores === undefined),
      "Give either store or stores",
    ),
  ),
  holder: oneStore,
  watch: v.object({ stores: v.exactOptional(storeCodes) }),
  unwatch: v.object({ subscription: text }),
  status: none,
  leases: v.object({
    prefix: v.exactOptional(text),
    after: v.exactOptional(text),
    limit: v.optional(
      v.pipe(
        v.number("must be a whole number"),
        v.integer("must be a whole number"),
        v.minValue(1, "must be at least 1"),
        v.transform((limit) => Math.min(limit, MAX_PAGE)),
      ),
      DEFAULT_PAGE,
    ),
  }),
  history: oneStore,
  stepdown: v.pipe(
    v.object({
      store: v.exactOptional(storeCode),
      all: v.exactOptional(flag),
      for_ms: v.exactOptional(stepdownMs),
    }),
    v.check(
      (params) => (params.store === undefined) === (params.all === true),
      "Give either store or all: true",
    ),
  ),
} satisfies { [M in Method]: v.GenericSchema<unknown, Methods[M]["filled"]> };

/** The parameters of `method`, defaults filled in, or why they are refused. */
export function parseParams<M extends Method>(
  method: M,
  params: unknown,
): { readonly ok: true; readonly params: Methods[M]["filled"] } | {
  readonly ok: false;
  readonly refusal: Refusal;
} {
  if (params === undefined) params = {};
  if (typeof params !== "object" || params === null || Array.isArray(params)) {
    return refused(method, "Parameters must be an object of named members");
  }
  const schema: v.GenericSchema<unknown, Methods[M]["filled"]> = SCHEMAS[method];
  const result = v.safeParse(schema, params, { abortEarly: true });
  return result.success
    ? { ok: true, params: result.output }
    : refused(method, sentence(result.issues[0]));
}

/** `issue` as a sentence that begins with the parameter it is about, if it is about one. */
function sentence(issue: v.BaseIssue<unknown>): string {
  const path = issue.path;
  if (path === undefined) return issue.message;
  const [{ key: name }, item] = path;
  const where = item === undefined ? String(name) : `${name}[${item.key}]`;
  // The schema library words this one; every other message here is our own.
  const missing = issue.kind === "schema" && issue.type === "object";
  return `Parameter ${where} ${missing ? "is missing" : issue.message}`;
}

function refused(method: string, message: string): { ok: false; refusal: Refusal } {
  return {
    ok: false,
    refusal: { kind: "invalid", message: `Cannot answer "${method}": ${message}` },
  };
}
