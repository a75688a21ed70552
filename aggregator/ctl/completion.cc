// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/ctl/completion.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "aggregator/ctl/command.h"
#include "aggregator/ctl/output.h"
#include "protocol/limits/names.h"

namespace basin::aggregator {
namespace {

// What may follow the command, separated by blanks. A flag with a value ends with "=".
std::string WordsAfter(const Command& command) {
  std::string words;
  for (const std::string& word : FixedWords(command)) absl::StrAppend(&words, word, " ");
  for (const FlagName& flag : FlagsOf(command)) {
    absl::StrAppend(&words, flag.name, flag.takes_value ? "=" : "", " ");
    if (!flag.letter.empty()) absl::StrAppend(&words, flag.letter, " ");
  }
  words.pop_back();
  return words;
}

// In single quotes of a shell.
std::string Quoted(const std::string& text, const char* quote) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", quote}}), "'");
}

std::string Bash() {
  std::string text =
      "# bash completion for basinctl\n"
      "_basinctl() {\n"
      "  local words command= word\n"
      "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
      "    case $word in -*) ;; *) command=$word; break ;; esac\n"
      "  done\n"
      "  case $command in\n";
  std::string names;
  for (const Command& command : Commands()) {
    absl::StrAppend(&text, "    ", command.name, ") words=", Quoted(WordsAfter(command), "'\\''"),
                    " ;;\n");
    absl::StrAppend(&names, names.empty() ? "" : " ", command.name);
  }
  return absl::StrCat(text, "    *) words='", names, " --help' ;;\n",
                      "  esac\n"
                      "  COMPREPLY=($(compgen -W \"$words\" -- \"${COMP_WORDS[COMP_CWORD]}\"))\n"
                      "  # A flag that ends with = waits for its value.\n"
                      "  [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null\n"
                      "  return 0\n"
                      "}\n"
                      "complete -o default -F _basinctl basinctl\n");
}

std::string Zsh() {
  std::string commands;
  std::string cases;
  for (const Command& command : Commands()) {
    absl::StrAppend(&commands, "    ",
                    Quoted(absl::StrCat(command.name, ":", command.summary), "'\\''"), "\n");
    absl::StrAppend(&cases, "    ", command.name, ") compadd -S '' -- ", WordsAfter(command),
                    " ;;\n");
  }
  return absl::StrCat(
      "#compdef basinctl\n"
      "_basinctl() {\n"
      "  local -a commands\n"
      "  commands=(\n",
      commands,
      "  )\n"
      "  if (( CURRENT == 2 )); then\n"
      "    _describe command commands\n"
      "    return\n"
      "  fi\n"
      "  case ${words[2]} in\n",
      cases,
      "  esac\n"
      "  _files\n"
      "}\n"
      "compdef _basinctl basinctl\n");
}

std::string Fish() {
  std::string text = "# fish completion for basinctl\n";
  for (const Command& command : Commands()) {
    absl::StrAppend(&text, "complete -c basinctl -n __fish_use_subcommand -f -a ", command.name,
                    " -d ", Quoted(command.summary, "\\'"), "\n");
    const std::string seen =
        absl::StrCat("complete -c basinctl -n '__fish_seen_subcommand_from ", command.name, "'");
    for (const std::string& word : FixedWords(command)) {
      absl::StrAppend(&text, seen, " -a ", word, "\n");
    }
    for (const FlagName& flag : FlagsOf(command)) {
      absl::StrAppend(&text, seen, " -l ", flag.name.substr(2),
                      flag.letter.empty() ? "" : " -s " + flag.letter.substr(1),
                      flag.takes_value ? " -r" : "", "\n");
    }
  }
  return text;
}

}  // namespace

absl::Status RunCompletion(const Arguments& arguments) {
  const std::string& shell = arguments.words[1];
  if (shell == "bash") {
    Print(Bash());
  } else if (shell == "zsh") {
    Print(Zsh());
  } else if (shell == "fish") {
    Print(Fish());
  } else {
    return absl::InvalidArgumentError(absl::StrCat(QuoteForError(shell),
                                                   " is not a known shell; write bash, zsh or "
                                                   "fish"));
  }
  return absl::OkStatus();
}

}  // namespace basin::aggregator
