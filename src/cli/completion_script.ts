/**
 * Completion scripts, made of the definitions of the commands.
 * @module
 */
import type { Command } from "commander";

interface Words {
  readonly name: string;
  readonly summary: string;
  readonly flags: readonly Flag[];
  /** What its argument may be, where that is known. */
  readonly choices: readonly string[];
}

interface Flag {
  readonly flag: string;
  readonly help: string;
  /** How help names its value; null for a switch. */
  readonly value: string | null;
  /** What its value may be, where that is known. */
  readonly choices: readonly string[];
}

/** What help calls a value that is a path. */
const PATHS: readonly (string | null)[] = ["FILE", "PATH", "DIR"];

/** The script for a shell, or null for one that is not known. */
export function completionScript(shell: string, program: Command): string | null {
  const visible = program.createHelp().visibleCommands(program);
  const names = visible.map((each) => each.name());
  const commands = visible.map(wordsOf)
    .map((words) => words.name === "help" ? { ...words, choices: names } : words);
  const own = wordsOf(program);
  switch (shell) {
    case "bash":
      return bash(own, commands);
    case "zsh":
      return zsh(own, commands);
    case "fish":
      return fish(own, commands);
    default:
      return null;
  }
}

function wordsOf(command: Command): Words {
  const flags = command.createHelp().visibleOptions(command)
    .filter((option) => option.long)
    .map((option) => ({
      flag: option.long!,
      help: option.description,
      value: /[<[]([^>\]]+)[>\]]/.exec(option.flags)?.[1] ?? null,
      choices: option.argChoices ?? [],
    }));
  const choices = command.registeredArguments.flatMap((each) => each.argChoices ?? []);
  const summary = command.summary() || command.description();
  return { name: command.name(), summary, flags, choices };
}

function bash(own: Words, commands: readonly Words[]): string {
  const cases = commands.map(({ name, flags, choices }) =>
    `    ${name}) words="${[...flags.map((each) => each.flag), ...choices].join(" ")}" ;;`
  );
  const top = [...commands.map((each) => each.name), ...own.flags.map((each) => each.flag)];
  return `# bash completion of agent
_agent() {
  local words
  # After \`--\` comes another program's command line.
  local word
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    if [[ $word == -- ]]; then
      COMPREPLY=($(compgen -o bashdefault -o default -c -- "\${COMP_WORDS[COMP_CWORD]}"))
      return
    fi
  done
  local current="\${COMP_WORDS[COMP_CWORD]}" flag="\${COMP_WORDS[COMP_CWORD-1]}"
  # \`--flag=value\` comes as three words.
  if [[ $current == = ]]; then
    current=
  elif [[ $flag == = ]]; then
    flag="\${COMP_WORDS[COMP_CWORD-2]}"
  fi
  case "$flag" in
${bashValues(commands.flatMap((each) => each.flags)).join("\n")}
  esac
  case "\${COMP_WORDS[1]}" in
${cases.join("\n")}
    *) words="${top.join(" ")}" ;;
  esac
  ((COMP_CWORD == 1)) && words="${top.join(" ")}"
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _agent agent
`;
}

/** What is offered behind a flag: its words, or files, or nothing where only people know. */
function bashValues(flags: readonly Flag[]): string[] {
  const valued = flags.filter((each) => each.value !== null);
  const fixed = valued.filter((each) => each.choices.length > 0);
  const free = valued.filter((each) => each.choices.length === 0);
  const named = (some: readonly Flag[]) => [...new Set(some.map((each) => each.flag))].join("|");
  const files = named(free.filter((each) => PATHS.includes(each.value)));
  const others = named(free.filter((each) => !PATHS.includes(each.value)));
  const noFiles = "compopt +o default 2>/dev/null; return";
  return [
    ...fixed.map(({ flag, choices }) =>
      `    ${flag}) COMPREPLY=($(compgen -W "${choices.join(" ")}" -- "$current")); ${noFiles} ;;`
    ),
    // A file's name, which is what is offered when there is no reply.
    `    ${files}) COMPREPLY=(); return ;;`,
    `    ${others}) COMPREPLY=(); ${noFiles} ;;`,
  ];
}

function zsh(own: Words, commands: readonly Words[]): string {
  const described = commands.map(({ name, summary }) => `    ${quote(`${name}:${summary}`)}`);
  const cases = commands.map(({ name, flags, choices }) => {
    const rest = choices.length === 0 ? "*: :_default" : `1: :(${choices.join(" ")})`;
    return `    ${name}) _arguments ${[...flags.map(zshFlag), rest].map(quote).join(" ")} ;;`;
  });
  return `#compdef agent
_agent() {
  local -a commands
  commands=(
${described.join("\n")}
  )
  if ((CURRENT == 2)); then
    _describe 'command' commands
    compadd -- ${own.flags.map((each) => each.flag).join(" ")}
    return
  fi
  # The command becomes what the flags are those of.
  shift words
  ((CURRENT--))
  case "\${words[1]}" in
${cases.join("\n")}
  esac
}
_agent "$@"
`;
}

/** Brackets and colons have meanings there. */
function zshFlag({ flag, help, value, choices }: Flag): string {
  const text = `${flag}${value === null ? "" : "="}[${help.replace(/[[\]]/g, "")}]`;
  if (value === null) return text;
  const offered = choices.length > 0 ? `(${choices.join(" ")})` : " ";
  return `${text}:${value.replaceAll(":", "")}:${PATHS.includes(value) ? "_files" : offered}`;
}

function fish(own: Words, commands: readonly Words[]): string {
  const lines = ["# fish completion of agent", "complete -c agent -f"];
  for (const { name, summary } of commands) {
    lines.push(`complete -c agent -n __fish_use_subcommand -a ${name} -d ${quote(summary)}`);
  }
  for (const { flag, help } of own.flags) {
    lines.push(`complete -c agent -n __fish_use_subcommand -l ${flag.slice(2)} -d ${quote(help)}`);
  }
  for (const { name, flags, choices } of commands) {
    const when = quote(`__fish_seen_subcommand_from ${name}`);
    if (choices.length > 0) {
      lines.push(`complete -c agent -n ${when} -a ${quote(choices.join(" "))}`);
    }
    for (const each of flags) {
      const { flag, help } = each;
      lines.push(
        `complete -c agent -n ${when} -l ${flag.slice(2)}${fishValue(each)} -d ${quote(help)}`,
      );
    }
  }
  return `${lines.join("\n")}\n`;
}

function fishValue({ value, choices }: Flag): string {
  if (value === null) return "";
  if (PATHS.includes(value)) return " -r -F";
  return choices.length === 0 ? " -x" : ` -x -a ${quote(choices.join(" "))}`;
}

/** For a shell, in single quotes. */
function quote(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
