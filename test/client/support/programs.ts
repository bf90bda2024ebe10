/**
 * Programs that use the client, for compilers: which of them compile, and which must not.
 * @module
 */

/** What the module is called in the programs' text. */
const MODULE = "MODULE";

/** What every program begins with: a guarded write, as it should be. */
const PRELUDE = `
import { connect, type Genuine, requireToken, type Token, unguarded, ZitCli } from "${MODULE}";
import type { Token as Pass } from "${MODULE}";
import type * as client from "${MODULE}";
export { type client, type Pass, type Token, unguarded };
export const zit = new ZitCli();
export const agent = await connect();
/** A writing call of the program's own. */
export function push<T extends Token>(token: Genuine<T>, store: string): void {
  requireToken(token, store);
}
`;

/** Programs that are fine, so that the others fail for their own reason. */
export const COMPILES: Record<string, string> = {
  guarded: `await agent.guard("s", {}, async (token) => {
    push(token, "s");
    await token.verify();
    return (await zit.write(token, "s", ["commit"])).status;
  });`,
  helper: `function helper(token: Token) { push(token, "s"); }
  await agent.guard("s", { waitMs: 5 }, helper);`,
  unguarded: `push(unguarded("a repair by hand"), "s");`,
  read: `await zit.read("s", "timeline", ["-n", "5"]);`,
  "own reads": `await new ZitCli({ reads: ["cat", "peek"] }).read("s", "peek");`,
};

/** Programs that must not compile, each with what the compiler says first. */
export const DOES_NOT_COMPILE: Record<string, [code: string, body: string]> = {
  "no token": ["TS2554", `push("s");`],
  "no token for zit": ["TS2554", `await zit.write("s", ["commit"]);`],
  "undefined": ["TS2345", `push(undefined, "s");`],
  "null": ["TS2345", `push(null, "s");`],
  "a string": ["TS2345", `push("token", "s");`],
  "what JSON gives": ["TS2345", `push(JSON.parse("{}"), "s");`],
  "any": ["TS2345", `const forged: any = {}; push(forged, "s");`],
  "any for zit": ["TS2345", `const forged: any = {}; await zit.write(forged, "s", ["commit"]);`],
  "unknown": ["TS2345", `const forged: unknown = {}; push(forged, "s");`],
  "never": [
    "TS2345",
    `function f(x: string | number) { if (typeof x !== "string" && typeof x !== "number") {
    const y: string = x; push(y, "s"); } } f(1);`,
  ],
  "an empty object": ["TS2345", `push({}, "s");`],
  "an object with its members": [
    "TS2345",
    `const signal = new AbortController().signal;
  push({ store: "s", epoch: 1, node: "n", lockPath: "/l", unguarded: null, signal,
    remainingMs: 1, live: true, verify: () => Promise.resolve() }, "s");`,
  ],
  "a spread copy": ["TS2345", `await agent.guard("s", {}, (token) => push({ ...token }, "s"));`],
  "a created copy": [
    "TS2345",
    `await agent.guard("s", {}, (token) => push(Object.create(token), "s"));`,
  ],
  "a serialised copy": [
    "TS2345",
    `await agent.guard("s", {}, (token) =>
    push(JSON.parse(JSON.stringify(token)), "s"));`,
  ],
  "construction": ["TS2673", `push(new Token(), "s");`],
  "construction by its class": [
    "TS2673",
    `await agent.guard("s", {}, (token) => {
    const Class = token.constructor as typeof Token; push(new Class(), "s"); });`,
  ],
  "a subclass": ["TS2675", `class Fake extends Token {} push(new Fake(), "s");`],
  "an implementation": [
    "TS2345",
    `class Fake implements Token { store = "s"; epoch = 1; node = "n";
    lockPath = "/l"; unguarded = null; signal = new AbortController().signal; remainingMs = 1;
    live = true; verify() { return Promise.resolve(); } } push(new Fake(), "s");`,
  ],
  "spread arguments": ["TS2345", `push(...(JSON.parse("[]") as [any, string]));`],
  "a choice among arguments": [
    "TS2345",
    `await agent.guard("s", {}, (token) =>
    push(Math.random() > 2 ? token : JSON.parse("{}"), "s"));`,
  ],
  "a cast string": ["TS2352", `push("token" as Token, "s");`],
  "a cast to any": ["TS2345", `push({} as any, "s");`],
  "the name of the maker": [
    "TS2305",
    `import { mintToken } from "${MODULE}"; mintToken({} as never);`,
  ],
  "a guard without a write": ["TS2554", `await agent.guard("s", {});`],
  "unguarded without a reason": ["TS2554", `push(unguarded(), "s");`],
  "a write as a read": ["TS2345", `await zit.read("s", "commit", ["-m", "x"]);`],
};

/**
 * What no type can keep from compiling, because the language says that these casts and copies have
 * the type of a token: refused when it runs. The linter finds the casts among them.
 */
export const COMPILES_AND_IS_REFUSED: Record<string, string> = {
  "an empty object, cast": `push({} as Token, "s");`,
  "an object, cast": `push({ store: "s", epoch: 1 } as Token, "s");`,
  "another class, cast": `class Fake { store = "s"; } push(new Fake() as Token, "s");`,
  "a cast by way of unknown": `push("x" as unknown as Token, "s");`,
  "a cast to never": `push({} as never, "s");`,
  "any by way of a variable": `const forged: Token = JSON.parse("{}"); push(forged, "s");`,
  "an heir by way of a variable": `await agent.guard("s", {}, (token) => {
    const heir: Token = Object.create(token); push(heir, "s"); });`,
  "a class by way of any": `await agent.guard("s", {}, (token) => {
    const Class: any = token.constructor; class Fake extends Class {}
    const fake: Token = Reflect.construct(Object, [], Fake) as any; push(fake, "s"); });`,
  "a cast to a renamed import": `push({} as Pass, "s");`,
  "a cast to the type by its module": `push({} as client.Token, "s");`,
  "a cast to the type of an import": `push({} as import("${MODULE}").Token, "s");`,
  "a cast to an alias": `type Permit = Token; push({} as Permit, "s");`,
  "a cast to an alias of an alias": `type Permit = Two; type Two = Readonly<Pass>;
    push({} as Permit as Token, "s");`,
  "a cast to an heir of its interface": `interface Permit extends Token { note?: string }
    push({} as Permit, "s");`,
  "a cast to what has one in it": `push(({} as { token: Token }).token, "s");`,
  "a cast of a list": `push(([{}] as Token[])[0]!, "s");`,
  "a cast of a function": `push(((() => ({})) as () => Token)(), "s");`,
  "a cast to the type of a token": `await agent.guard("s", {}, (token) =>
    push({} as typeof token, "s"));`,
  "a cast to what unguarded gives": `push({} as ReturnType<typeof unguarded>, "s");`,
  "any by way of two variables": `const any: any = {}; const forged: Token = any;
    push(forged, "s");`,
  "any by way of an assignment": `let forged: Token; forged = JSON.parse("{}"); push(forged, "s");`,
  "any by way of a promise": `const forged: Token = await Promise.resolve<any>({});
    push(forged, "s");`,
  "any by way of a list": `const forged: Token[] = JSON.parse("[{}]"); push(forged[0]!, "s");`,
  "any in a list": `const any: any = {}; const forged: Token[] = [any]; push(forged[0]!, "s");`,
  "any by way of a choice":
    `const forged: Token = Math.random() > 2 ? unguarded("x") : JSON.parse("{}");
    push(forged, "s");`,
  "any by way of a default": `const any: any = {}; function f(forged: Token = any) {
    push(forged, "s"); } f();`,
  "any by way of a property": `class Holder { static token: Token = JSON.parse("{}"); }
    push(Holder.token, "s");`,
  "any by way of what is returned": `function forge(): Token { return JSON.parse("{}"); }
    push(forge(), "s");`,
  "any by way of a parameter": `function forge(any: any) { helper(any); }
    function helper(token: Token) { push(token, "s"); } forge({});`,
  "any by way of a type predicate": `const isToken = (any: unknown): any is Token => any !== 1;
    const any: unknown = {}; if (isToken(any)) push(any, "s");`,
  "any by way of a type argument": `function to<T>(any: any): T { return any; }
    push(to<Token>({}), "s");`,
  "any by way of its own type argument": `push<Token>(JSON.parse("{}"), "s");`,
  "any by way of a method's type argument": `await zit.write<Token>(JSON.parse("{}"), "s", []);`,
  "nothing, said to be something": `push(null!, "s");`,
  "undefined, said to be something": `push(undefined!, "s");`,
  "a variable, said to be given something": `let forged!: Token; push(forged, "s");`,
  "a property, said to be given something": `class Holder { token!: Token }
    push(new Holder().token, "s");`,
  "any by way of apply": `push.apply(null, JSON.parse("[]"));`,
  "a function of any kind": `(push as Function)({}, "s");`,
  "any by way of an assigned property": `const holder: { token?: Token } = {};
    holder.token = JSON.parse("{}"); push(holder.token!, "s");`,
  "any by way of a list's method": `const forged: Token[] = []; forged.push(JSON.parse("{}"));
    push(forged[0]!, "s");`,
  "an assigned copy": `await agent.guard("s", {}, (token) =>
    push(Object.assign({}, token), "s"));`,
  "a proxy": `await agent.guard("s", {}, (token) => push(new Proxy(token, {}), "s"));`,
  "a structured clone": `await agent.guard("s", {}, (token) => push(structuredClone(token), "s"));`,
};

/** The text of a program, for a module of that name. */
export function programOf(body: string, module: string): string {
  return `${PRELUDE}\n${body}\n`.replaceAll(MODULE, module);
}

/** Every program, by its title. */
export function allPrograms(): [title: string, body: string][] {
  const bad = Object.entries(DOES_NOT_COMPILE).map(([title, [, body]]) => [title, body] as const);
  return [
    ...Object.entries(COMPILES),
    ...bad.map(([title, body]): [string, string] => [title, body]),
    ...Object.entries(COMPILES_AND_IS_REFUSED),
  ];
}
