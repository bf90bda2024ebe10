/**
 * Completion scripts, made of the definitions of the commands.
 * @module
 */
import type { Command } from "commander";

interface Words {
  readonly name: string;
  readonly summary: string;
  readonly flags: readonly Flag[];
}

interface Flag {
  readonly flag: string;
  readonly help: string;
  /** How help names its value; null for a switch. */
  readonly value: string | null;
}

/** The script for a shell, or null for one that is not known. */
export function completionScript(shell: string, program: Command): string | null {
  const commands = program.createHelp().visibleCommands(program).map(wordsOf);
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
    }));
  return { name: command.name(), summary: command.summary() || command.description(), flags };
}

function bash(own: Words, commands: readonly Words[]): string {
  const cases = commands.map(({ name, flags }) =>
    `    ${name}) words="${flags.map((each) => each.flag).join(" ")}" ;;`
  );
  const valued = commands.flatMap(({ flags }) => flags.filter((each) => each.value !== null));
  const valuedFlags = [...new Set(valued.map((each) => each.flag))].join("|");
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
  # A value: a file's name, which is what is offered when there is no reply.
  case "\${COMP_WORDS[COMP_CWORD-1]}" in
    ${valuedFlags}) COMPREPLY=(); return ;;
  esac
  case "\${COMP_WORDS[1]}" in
${cases.join("\n")}
    *) words="${top.join(" ")}" ;;
  esac
  ((COMP_CWORD == 1)) && words="${top.join(" ")}"
  COMPREPLY=($(compgen -W "$words" -- "\${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _agent agent
`;
}

function zsh(own: Words, commands: readonly Words[]): string {
  const described = commands.map(({ name, summary }) => `    ${quote(`${name}:${summary}`)}`);
  const cases = commands.map(({ name, flags }) =>
    `    ${name}) _arguments ${
      flags.map((each) => quote(zshFlag(each))).join(" ")
    } '*: :_default' ;;`
  );
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
function zshFlag({ flag, help, value }: Flag): string {
  const text = `${flag}${value === null ? "" : "="}[${help.replace(/[[\]]/g, "")}]`;
  return value === null ? text : `${text}:${value.replaceAll(":", "")}:_default`;
}

function fish(own: Words, commands: readonly Words[]): string {
  const lines = ["# fish completion of agent", "complete -c agent -f"];
  for (const { name, summary } of commands) {
    lines.push(`complete -c agent -n __fish_use_subcommand -a ${name} -d ${quote(summary)}`);
  }
  for (const { flag, help } of own.flags) {
    lines.push(`complete -c agent -n __fish_use_subcommand -l ${flag.slice(2)} -d ${quote(help)}`);
  }
  for (const { name, flags } of commands) {
    for (const { flag, help, value } of flags) {
      const when = quote(`__fish_seen_subcommand_from ${name}`);
      const takes = value === null ? "" : " -r -F";
      lines.push(`complete -c agent -n ${when} -l ${flag.slice(2)}${takes} -d ${quote(help)}`);
    }
  }
  return `${lines.join("\n")}\n`;
}

/** For a shell, in single quotes. */
function quote(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
