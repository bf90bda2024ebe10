/**
 * A rule for `deno lint`: neither a cast nor an annotation makes a token. The compiler lets `{} as Token`
 * pass, as the language wants, and `any` as a Token by way of a variable; at run time both are
 * refused, but that is late to hear of it.
 *
 * In deno.json: `"lint": { "plugins": ["./node_modules/zit-lease-agent/dist/lint.js"] }`.
 * @module
 */

const MESSAGE = "Nothing but a guard makes a Token: the write will be refused when it runs";
const HINT = "Pass on the token that guard() gives, or see unguarded()";

/** As much of a syntax tree as is looked at. */
interface Node {
  readonly type: string;
  readonly name?: string;
  readonly typeAnnotation?: Node | null;
  readonly typeName?: Node;
  readonly right?: Node;
  readonly property?: Node;
  readonly callee?: Node;
  readonly expression?: Node;
  readonly id?: Node;
  readonly init?: Node | null;
}

/** What a rule may do. */
interface Context {
  report(what: { node: Node; message: string; hint: string }): void;
}

/** The plugin, as `deno lint` loads it. */
const plugin = {
  name: "zit",
  rules: {
    "no-token-cast": {
      create(context: Context) {
        const report = (node: Node) => context.report({ node, message: MESSAGE, hint: HINT });
        const checkCast = (node: Node) => {
          if (isToken(node.typeAnnotation)) report(node);
        };
        return {
          TSAsExpression: checkCast,
          TSTypeAssertion: checkCast,
          VariableDeclarator(node: Node) {
            if (!isToken(node.id?.typeAnnotation?.typeAnnotation)) return;
            if (node.init && !mayBeToken(node.init)) report(node.init);
          },
        };
      },
    },
  },
};

/** `Token`, or `client.Token`. */
function isToken(type: Node | null | undefined): boolean {
  if (type?.type !== "TSTypeReference") return false;
  return (type.typeName?.right ?? type.typeName)?.name === "Token";
}

/** What has a name has a type that was checked; of calls, one gives a token. */
function mayBeToken(init: Node): boolean {
  if (init.type === "AwaitExpression") return true;
  if (init.type !== "CallExpression") return init.type === "Identifier";
  return (init.callee?.property ?? init.callee)?.name === "unguarded";
}

export default plugin;
