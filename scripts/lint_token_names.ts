/**
 * What the names in a file mean to the rule of lint_token_casts.ts: which types are, or have in them, a
 * Token; which variables are one, as far as their declarations say.
 * @module
 */

/** As much of a syntax tree as is looked at. */
export interface Node {
  readonly type: string;
  readonly name?: string;
  readonly [member: string]: unknown;
}

/** Where a type has other types in it that it gives to whoever has it. Not: a function's parameters. */
const PARTS = [
  ...["typeAnnotation", "typeArguments", "elementType", "elementTypes", "types", "members"],
  ...["objectType", "returnType", "trueType", "falseType", "body", "extends"],
];

/** The one function that makes a token outside a guard. */
const MAKER = "unguarded";

/** What is declared in a file. Scopes are not told apart: a name that may be `any` is so everywhere. */
export class Names {
  readonly #types = new Set(["Token"]);
  readonly #tokens = new Set<string>();
  readonly #anys = new Set<string>();
  readonly #aliases: [name: string, type: Node][] = [];
  readonly #variables: [name: string, type: Node | null, init: Node | null][] = [];

  /** `import { Token as name }`, `type name = …`, `interface name { … }`. */
  addType(name: string, type: Node): void {
    this.#aliases.push([name, type]);
  }

  /** A variable or a parameter, with what it is given at once. */
  addVariable(pattern: Node, init: Node | null = null): void {
    const type = at(pattern, "typeAnnotation", "typeAnnotation");
    for (const name of namesIn(pattern)) this.#variables.push([name, type, init]);
  }

  /** The function that a guard runs: its first parameter is the token. */
  addGuarded(called: Node): void {
    const token = (called.params as Node[] | undefined)?.[0];
    if (token?.name !== undefined && !token.typeAnnotation) this.#tokens.add(token.name);
  }

  /** All is added: finds what each name comes to. */
  settle(): void {
    for (let known = -1; known !== this.#types.size + this.#tokens.size;) {
      known = this.#types.size + this.#tokens.size;
      for (const [name, type] of this.#aliases) if (this.makesToken(type)) this.#types.add(name);
      for (const [name, type, init] of this.#variables) {
        if (type?.type === "TSAnyKeyword") this.#anys.add(name);
        else if (type === null ? this.#isToken(init) : this.makesToken(type)) {
          this.#tokens.add(name);
        }
      }
    }
  }

  /** Whether what has this type is a token, or has one in it. */
  makesToken(type: unknown): boolean {
    if (Array.isArray(type)) return type.some((part) => this.makesToken(part));
    if (!isNode(type)) return false;
    switch (type.type) {
      case "Identifier":
        return this.#types.has(type.name!);
      case "TSQualifiedName":
        return this.makesToken(type.right);
      case "TSTypeReference":
        return this.makesToken(type.typeName) || this.makesToken(type.typeArguments);
      case "TSTypeParameterInstantiation":
        return this.makesToken(type.params);
      case "TSInterfaceHeritage":
        return this.makesToken(type.expression) || this.makesToken(type.typeArguments);
      case "TSImportType":
        return this.makesToken(type.qualifier);
      case "TSTypeQuery":
        return this.#isToken(type.exprName) || nameOf(type.exprName) === MAKER;
      default:
        return PARTS.some((part) => this.makesToken(type[part]));
    }
  }

  /** Whether the variable is known for a token. */
  isToken(name: string | undefined): boolean {
    return name !== undefined && this.#tokens.has(name) && !this.#anys.has(name);
  }

  /** Whether the compiler may take it for a token because it takes it for anything. */
  mayBeAny(value: Node): boolean {
    switch (value.type) {
      case "Identifier":
        return value.name !== "undefined" && !this.isToken(value.name);
      case "CallExpression":
        return nameOf(value.callee) !== MAKER;
      case "ArrayExpression":
        return (value.elements as (Node | null)[]).some((each) => each && this.mayBeAny(each));
      case "ConditionalExpression":
        return [value.consequent, value.alternate].some((each) => this.mayBeAny(each as Node));
      case "LogicalExpression":
        return [value.left, value.right].some((each) => this.mayBeAny(each as Node));
      case "SpreadElement":
        return this.mayBeAny(value.argument as Node);
      case "TSNonNullExpression":
        return this.mayBeAny(value.expression as Node);
      // A cast to a token is found for itself.
      case "TSAsExpression":
      case "TSTypeAssertion":
        return !this.makesToken(value.typeAnnotation);
      default:
        return ["MemberExpression", "AwaitExpression"].includes(value.type);
    }
  }

  /**
   * Whether a call whose type arguments have a token in them is given something else first: the type
   * argument has the compiler take `any` for one. A function, as for `map`, is looked at for itself.
   */
  isForged({ arguments: given }: Node): boolean {
    const [first] = given as Node[];
    if (first === undefined || /Function/.test(first.type)) return false;
    return !this.#isToken(first);
  }

  #isToken(value: unknown): boolean {
    if (!isNode(value)) return false;
    return value.type === "CallExpression"
      ? nameOf(value.callee) === MAKER
      : this.isToken(value.name);
  }
}

/** What is at the end of a path of members; null if nothing is. */
export function at(node: unknown, ...path: readonly string[]): Node | null {
  for (const member of path) node = isNode(node) ? node[member] : null;
  return isNode(node) ? node : null;
}

/** `f` of `f` and of `a.f`. */
export function nameOf(node: unknown): string | undefined {
  return (at(node, "property") ?? at(node, "right") ?? at(node))?.name;
}

function isNode(value: unknown): value is Node {
  return typeof value === "object" && value !== null && "type" in value;
}

/** The names that a pattern declares. */
function namesIn(pattern: Node): string[] {
  if (pattern.name !== undefined) return [pattern.name];
  const parts = [
    ...["left", "parameter", "argument", "value"].map((member) => at(pattern, member)),
    ...(pattern.properties as Node[] | undefined ?? []),
    ...(pattern.elements as (Node | null)[] | undefined ?? []),
  ];
  return parts.filter((part) => part !== null).flatMap(namesIn);
}
