/**
 * A rule for `deno lint`: no cast makes a token. The compiler lets `{} as Token` pass, as the language
 * wants; at run time it is refused, but that is late to hear of it.
 *
 * In deno.json: `"lint": { "plugins": ["./scripts/lint_token_casts.ts"] }`.
 * @module
 */

const MESSAGE = "A cast to Token makes none: the write will be refused when it runs";
const HINT = "Pass on the token that guard() gives, or see unguarded()";

/** What is looked at of a cast: `x as T`, `<T> x`. */
interface Cast {
  readonly typeAnnotation: {
    readonly type: string;
    readonly typeName?: { readonly name?: string };
  };
}

/** What a rule may do. */
interface Context {
  report(what: { node: Cast; message: string; hint: string }): void;
}

/** The plugin, as `deno lint` loads it. */
const plugin = {
  name: "zit",
  rules: {
    "no-token-cast": {
      create(context: Context) {
        const check = (node: Cast) => {
          const { type, typeName } = node.typeAnnotation;
          if (type !== "TSTypeReference" || typeName?.name !== "Token") return;
          context.report({ node, message: MESSAGE, hint: HINT });
        };
        return { TSAsExpression: check, TSTypeAssertion: check };
      },
    },
  },
};

export default plugin;
