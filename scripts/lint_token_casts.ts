/**
 * A rule for `deno lint`: no cast, no annotation and no copy makes a token. The compiler lets `{} as
 * Token` pass, as the language wants, and `any` as a Token by way of a variable; at run time all are
 * refused, but that is late to hear of it.
 *
 * It sees syntax, a file at a time: a token is what was declared as one there. What it cannot see is
 * told in docs/client.md.
 *
 * In deno.json: `"lint": { "plugins": ["./node_modules/zit-lease-agent/dist/lint.js"] }`.
 * @module
 */
import { at, nameOf, Names, type Node } from "./lint_token_names.ts";

const MESSAGE =
  "Nothing but a guard makes a Token: of anything else, the write will be refused when it runs";
const HINT =
  "Pass on the token that guard() gives, with no cast and no annotation, or see unguarded()";

/** Calls that give what has a token's type, and is none. */
const COPIERS = [
  ...["Object.assign", "Object.create", "Object.setPrototypeOf"],
  ...["structuredClone", "Proxy"],
];

/** What a rule may do. */
interface Context {
  report(what: { node: Node; message: string; hint: string }): void;
}

/** The plugin, as `deno lint` loads it. */
const plugin = { name: "zit", rules: { "no-token-cast": { create } } };

/** Visits a file, and judges at its end: what is declared below may be used above. */
function create(context: Context) {
  const names = new Names();
  const casts: Node[] = [];
  const copies: Node[] = [];
  const annotated: [type: Node | null, value: Node][] = [];
  const assigned: [name: string | undefined, value: Node][] = [];
  const claimed: [type: Node | null, node: Node][] = [];
  const nothings: Node[] = [];
  const typed: Node[] = [];

  const give = (target: Node, value: unknown) => {
    const given = at(value);
    if (given) annotated.push([at(target, "typeAnnotation", "typeAnnotation"), given]);
  };
  const declareParameters = ({ params }: Node) => {
    for (const each of params as Node[]) {
      const parameter = at(each, "parameter") ?? each;
      const target = at(parameter, "left") ?? parameter;
      names.addVariable(target, at(parameter, "right"));
      give(target, parameter.right);
    }
  };
  /** `let name!: Token`, `declare const name: Token`: nothing has to be given to it. */
  const claim = (node: Node, target: Node, isClaimed: unknown) => {
    if (isClaimed) claimed.push([at(target, "typeAnnotation", "typeAnnotation"), node]);
  };
  const call = (node: Node) => {
    const called = nameOf(node.callee);
    const given = node.arguments as Node[];
    if (called === "guard") given.forEach((each) => names.addGuarded(each));
    nothings.push(...given.filter(isNothing));
    if (node.type === "CallExpression" && node.typeArguments) typed.push(node);
    const of = at(node, "callee", "object")?.name;
    if (COPIERS.includes(of === undefined ? `${called}` : `${of}.${called}`)) copies.push(node);
  };
  const cast = (node: Node) => void casts.push(node);

  return {
    ImportSpecifier: (node: Node) => names.addType(at(node, "local")!.name!, at(node, "imported")!),
    TSTypeAliasDeclaration: (node: Node) =>
      names.addType(at(node, "id")!.name!, at(node, "typeAnnotation")!),
    TSInterfaceDeclaration: (node: Node) => names.addType(at(node, "id")!.name!, node),
    FunctionDeclaration: declareParameters,
    FunctionExpression: declareParameters,
    ArrowFunctionExpression: declareParameters,
    VariableDeclaration(node: Node) {
      for (const each of node.declarations as Node[]) {
        claim(each, at(each, "id")!, node.declare || each.definite);
      }
    },
    VariableDeclarator(node: Node) {
      names.addVariable(at(node, "id")!, at(node, "init"));
      give(at(node, "id")!, node.init);
    },
    PropertyDefinition(node: Node) {
      give(node, node.value);
      claim(node, node, node.declare); // what `!` it has is not told
    },
    AssignmentExpression: (node: Node) =>
      void assigned.push([at(node, "left")?.name, at(node, "right")!]),
    CallExpression: call,
    NewExpression: call,
    TSAsExpression: cast,
    TSTypeAssertion: cast,
    TSTypePredicate: cast,
    "Program:exit"() {
      names.settle();
      const wrong = new Set([
        ...casts.filter((node) => names.makesToken(node.typeAnnotation)),
        ...copies.filter((node) =>
          (node.arguments as Node[]).some(({ name }) => names.isToken(name))
        ),
        ...annotated.filter(([type, value]) => names.makesToken(type) && names.mayBeAny(value))
          .map(([, value]) => value),
        ...claimed.filter(([type]) => names.makesToken(type)).map(([, node]) => node),
        ...nothings,
        ...typed.filter((node) => names.makesToken(node.typeArguments) && names.isForged(node)),
        ...assigned.filter(([name, value]) => names.isToken(name) && names.mayBeAny(value))
          .map(([, value]) => value),
      ]);
      for (const node of wrong) context.report({ node, message: MESSAGE, hint: HINT });
    },
  };
}

/** `null!`, `undefined!`: of a type that goes for every parameter. */
function isNothing(node: Node): boolean {
  const of = at(node, "expression");
  return node.type === "TSNonNullExpression" && of !== null &&
    (of.name === "undefined" || (of.type === "Literal" && of.value === null));
}

export default plugin;
