// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Verbs for what is on its way, and for time.

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/scenarios/commands.h"

namespace basin::scenarios {
namespace {

Choice ParseChoice(Arguments& arguments) {
  Choice choice;
  choice.from = arguments.Text("from", "");
  choice.to = arguments.Text("to", "");
  choice.only = arguments.Text("only", "");
  if (const std::optional<std::string> stream = arguments.Option("stream")) {
    int number = kSessionStream;
    if (*stream != "session" && !absl::SimpleAtoi(*stream, &number)) {
      arguments.Fail("stream is session or a number");
    }
    choice.stream = number;
  }
  for (const std::string& type : arguments.List("hold")) choice.hold.insert(type);
  for (const std::string& process : arguments.List("but")) choice.but.insert(process);
  return choice;
}

void Deliver(World& world, Arguments& arguments) {
  const Choice choice = ParseChoice(arguments);
  const std::optional<uint64_t> wanted = arguments.MaybeNumber("n");
  const bool lose = arguments.Flag("lost");
  if (arguments.Flag("corrupt")) world.CorruptNextFrame();
  constexpr uint64_t kMost = 100000;
  uint64_t done = 0;
  while (done < wanted.value_or(kMost)) {
    if (!(lose ? world.LoseOne(choice) : world.DeliverOne(choice))) break;
    ++done;
  }
  if (done == 0 || done < wanted.value_or(0)) {
    arguments.Fail(absl::StrCat("only ", done, " of what is on its way is such"));
  }
}

void Stabilize(World& world, Arguments& arguments) { world.Stabilize(ParseChoice(arguments)); }

void Sleep(World& world, Arguments& arguments) {
  absl::Duration duration;
  const std::string text = arguments.NextWord();
  if (!absl::ParseDuration(text, &duration)) {
    return arguments.Fail(absl::StrCat(text, " is not a duration"));
  }
  world.Sleep(duration, ParseChoice(arguments));
}

void Disconnect(World& world, Arguments& arguments) {
  const std::optional<uint64_t> stream = arguments.MaybeNumber("stream");
  const bool half_open = arguments.Flag("half-open");
  for (WorkerProcess* worker : WorkersNamed(world, arguments)) {
    if (stream.has_value()) {
      world.LoseStream(*worker, static_cast<uint32_t>(*stream));
    } else {
      world.Disconnect(*worker, half_open);
    }
  }
  world.LoseClosed();
}

void Partition(World& world, Arguments& arguments) {
  const bool up = arguments.Flag("up");
  const bool down = arguments.Flag("down");
  for (WorkerProcess* worker : WorkersNamed(world, arguments)) {
    worker->cut_up = up || !down;
    worker->cut_down = down || !up;
  }
}

void Heal(World& world, Arguments& arguments) {
  for (WorkerProcess* worker : WorkersNamed(world, arguments)) {
    worker->cut_up = worker->cut_down = false;
  }
}

void Target(World& world, Arguments& arguments) {
  const std::string name = arguments.Text("to", "aggregator");
  for (WorkerProcess* worker : WorkersNamed(world, arguments)) worker->target = name;
}

void Log(World& world, Arguments& arguments) {
  const std::string level = arguments.NextWord();
  const std::vector<std::string> levels = {"nothing", "results", "decisions", "messages", "all"};
  for (size_t i = 0; i < levels.size(); ++i) {
    if (level == levels[i]) return world.set_detail(static_cast<Detail>(i));
  }
  arguments.Fail(absl::StrCat("there is no log level ", level));
}

}  // namespace

std::vector<Command> NetworkCommands() {
  return {
      {"deliver",
       "[from=P] [to=P] [n=N] [stream=session|N] [only=TYPE] [hold=TYPE,...] [lost] [corrupt]",
       "Delivers (or loses) what is chosen, in order of sending; corrupt: the first frame.",
       Deliver},
      {"stabilize", "[hold=TYPE,...] [but=P,...] and as deliver",
       "Delivers until nothing moves, except what is held and what is behind it.", Stabilize},
      {"sleep", "D [as stabilize]", "Lets time pass; timers fire and everything is delivered.",
       Sleep},
      {"disconnect", "W... [stream=N] [half-open]",
       "The network breaks the session, or one stream; half-open: only the worker notices.",
       Disconnect},
      {"partition", "W... [up] [down]", "Nothing of the worker passes, in one direction or both.",
       Partition},
      {"heal", "W...", "Everything passes again.", Heal},
      {"target", "W... to=AGGREGATOR", "Whom the workers connect to from now on.", Target},
      {"log", "nothing|results|decisions|messages|all", "How much is printed.", Log},
  };
}

}  // namespace basin::scenarios
