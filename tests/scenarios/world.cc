// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/scenarios/world.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/scenarios/oracle.h"

namespace basin::scenarios {
namespace {

constexpr int kMostDeliveries = 100000;  // In one command; more would be an endless loop.
constexpr int kMostTicksAtOnce = 1000;   // While no time passes; more would be an endless loop.

absl::Time Beginning() { return absl::FromUnixSeconds(1000); }

bool Passes(const std::string& wanted, const std::string& actual) {
  return wanted.empty() || wanted == actual;
}

std::string TypeOfItem(const Item& item) {
  if (const auto* up = std::get_if<ToAggregator>(&item.what)) return scenarios::TypeOf(*up);
  if (const auto* down = std::get_if<ToWorker>(&item.what)) return scenarios::TypeOf(*down);
  if (const auto* frame = std::get_if<PushFrame>(&item.what)) return scenarios::TypeOf(*frame);
  if (std::holds_alternative<ResultFrame>(item.what)) return "Result";
  return std::holds_alternative<BlobFrame>(item.what) ? "Value" : "Closed";
}

// Returns whether the item only serves flow control.
bool IsQuiet(const Item& item) {
  static const std::set<std::string> kQuiet = {"Heartbeat", "LayoutSeen", "Credit", "ResultAck"};
  if (kQuiet.count(TypeOfItem(item)) == 0) return false;
  if (const auto* message = std::get_if<ToWorker>(&item.what)) {
    if (const auto* credit = std::get_if<Credit>(message)) return credit->refused.empty();
  }
  return true;
}

}  // namespace

World::World() : now_(Beginning()) {}

std::string World::Clock() const { return absl::FormatDuration(now_ - Beginning()); }

void World::Print(Detail detail, const std::string& line) {
  if (detail <= detail_) absl::StrAppend(&output_, line, "\n");
}

void World::Violation(const std::string& line) {
  violated_ = true;
  absl::StrAppend(&output_, "!! ", line, "\n");
}

void World::PrintTravel(Detail detail, const std::string& from, const std::string& to,
                        const std::string& what) {
  Print(detail, absl::StrCat(from, " -> ", to, "  ", what));
}

// ---- processes

AggregatorProcess& World::StartAggregator(const std::string& name, aggregator::Config config) {
  aggregators_.push_back(std::make_unique<AggregatorProcess>(*this, name, std::move(config)));
  return *aggregators_.back();
}

AggregatorProcess* World::FindAggregator(const std::string& name) {
  for (const auto& aggregator : aggregators_) {
    if (aggregator->alive && aggregator->name() == name) return aggregator.get();
  }
  return nullptr;
}

void World::CrashAggregator(AggregatorProcess& aggregator) {
  aggregator.alive = false;
  for (Link& link : network_.links()) {
    if (link.aggregator == &aggregator) network_.KillAggregatorSide(link);
  }
}

WorkerProcess& World::StartWorker(const std::string& name, client::Config config) {
  const auto known = std::find(worker_names_.begin(), worker_names_.end(), name);
  const auto number = static_cast<uint32_t>(known - worker_names_.begin());
  if (known == worker_names_.end()) worker_names_.push_back(name);
  workers_.push_back(std::make_unique<WorkerProcess>(*this, name, number, std::move(config)));
  WorkerProcess& worker = *workers_.back();
  worker.Step(client::Tick{});
  return worker;
}

WorkerProcess* World::FindWorker(const std::string& name) {
  for (const auto& worker : workers_) {
    if (worker->alive && worker->name() == name) return worker.get();
  }
  return nullptr;
}

void World::KillWorker(WorkerProcess& worker) {
  worker.alive = false;
  network_.dials().remove_if([&](const Dial& dial) { return dial.worker == &worker; });
  for (Link& link : network_.links()) {
    if (link.worker == &worker && link.worker_open) network_.KillWorkerSide(link);
  }
}

void World::Disconnect(WorkerProcess& worker, bool half_open) {
  Link* link = network_.OpenLinkOf(&worker);
  if (link == nullptr) return;
  const bool tell = !half_open && link->aggregator->alive && link->aggregator_open;
  network_.Break(*link);
  if (tell) CloseSession(*link, false);
  worker.Step(client::SessionDown{"The connection broke."});
}

void World::LoseStream(WorkerProcess& worker, uint32_t stream) {
  Link* link = network_.OpenLinkOf(&worker);
  if (link == nullptr || stream >= link->streams.size()) return;
  const Stream lost = std::exchange(link->streams[stream], Stream{});
  if (link->aggregator_open) link->aggregator->Step(aggregator::StreamLost{lost.id});
  worker.Step(client::StreamDown{stream});
}

void World::CloseSession(Link& link, bool ended) {
  AggregatorProcess& aggregator = *link.aggregator;
  aggregator.Step(aggregator::SessionClosed{link.session});
  for (const Stream& stream : link.streams) {
    if (ended && stream.open) aggregator.Step(aggregator::StreamLost{stream.id});
  }
}

// ---- delivery

void World::ConsiderPipe(const Choice& choice, Link& link, bool up, int stream,
                         std::optional<Head>& best) {
  const Pipe& session = up ? link.up : link.down;
  const Pipe& pipe = stream == kSessionStream ? session
                     : up                     ? link.streams[static_cast<size_t>(stream)].up
                                              : link.streams[static_cast<size_t>(stream)].down;
  if (pipe.empty() || (choice.stream.has_value() && *choice.stream != stream)) return;
  const Item& item = pipe.front();
  if (best.has_value() && best->number < item.number) return;
  const std::string type = TypeOfItem(item);
  if (!Passes(choice.only, type) || choice.hold.count(type) > 0) return;
  best = Head{item.number, &link, nullptr, up, stream};
}

std::optional<World::Head> World::FirstHead(const Choice& choice) {
  std::optional<Head> best;
  const auto runs = [&](const auto& process) {
    return process.alive && !process.stopped && choice.but.count(process.name()) == 0;
  };
  for (Link& link : network_.links()) {
    const std::string& worker = link.worker->name();
    const std::string& aggregator = link.aggregator->name();
    if (choice.but.count(worker) + choice.but.count(aggregator) > 0) continue;
    const bool up_wanted = Passes(choice.from, worker) && Passes(choice.to, aggregator);
    const bool down_wanted = Passes(choice.from, aggregator) && Passes(choice.to, worker);
    const bool up_flows = runs(*link.aggregator) && !link.worker->cut_up;
    const bool down_flows = runs(*link.worker) && !link.worker->cut_down;
    const int streams = static_cast<int>(link.streams.size());
    for (int stream = kSessionStream; stream < streams; ++stream) {
      if (up_wanted && up_flows) ConsiderPipe(choice, link, true, stream, best);
      if (down_wanted && down_flows && link.worker_open) {
        ConsiderPipe(choice, link, false, stream, best);
      }
    }
  }
  for (Dial& dial : network_.dials()) {
    const WorkerProcess& worker = *dial.worker;
    const bool wanted = Passes(choice.from, worker.name()) && Passes(choice.to, worker.target) &&
                        choice.only.empty() && choice.but.count(worker.target) == 0 &&
                        !choice.stream.has_value() && choice.hold.count("Connect") == 0;
    const AggregatorProcess* aggregator = FindAggregator(worker.target);
    const bool answers = aggregator == nullptr || !aggregator->stopped;
    if (!wanted || !runs(worker) || worker.cut_up || worker.cut_down || !answers) continue;
    if (dial.due > now_ || (best.has_value() && best->number < dial.number)) continue;
    best = Head{dial.number, nullptr, &dial, true, kSessionStream};
  }
  return best;
}

Item World::TakeItem(const Head& head) {
  Link& link = *head.link;
  Pipe& session = head.up ? link.up : link.down;
  Pipe& pipe = head.stream == kSessionStream ? session
               : head.up                     ? link.streams[static_cast<size_t>(head.stream)].up
                                             : link.streams[static_cast<size_t>(head.stream)].down;
  Item item = std::move(pipe.front());
  pipe.pop_front();
  return item;
}

bool World::DeliverOne(const Choice& choice) {
  const std::optional<Head> head = FirstHead(choice);
  if (!head.has_value()) return false;
  if (head->dial != nullptr) {
    const Dial dial = *head->dial;
    network_.dials().remove_if([&](const Dial& d) { return d.number == dial.number; });
    dial.is_stream ? DeliverStreamDial(dial) : DeliverDial(dial);
    return true;
  }
  Item item = TakeItem(*head);
  if (head->up) {
    DeliverUp(*head->link, std::move(item), head->stream);
  } else {
    DeliverDown(*head->link, std::move(item), head->stream);
  }
  return true;
}

bool World::LoseOne(const Choice& choice) {
  const std::optional<Head> head = FirstHead(choice);
  if (!head.has_value() || head->dial != nullptr) return false;
  const Item item = TakeItem(*head);
  const std::string worker = head->link->worker->name();
  const std::string aggregator = head->link->aggregator->name();
  PrintTravel(Detail::kMessages, head->up ? worker : aggregator, head->up ? aggregator : worker,
              absl::StrCat(TypeOfItem(item), " is lost"));
  return true;
}

void World::DeliverUp(Link& link, Item item, int) {
  AggregatorProcess& aggregator = *link.aggregator;
  const std::string old = link.aggregator_open ? "" : " (of a session that is over)";
  const auto print = [&](const std::string& what) {
    PrintTravel(IsQuiet(item) ? Detail::kAll : Detail::kMessages, link.worker->name(),
                aggregator.name(), what + old);
  };
  if (const auto* message = std::get_if<ToAggregator>(&item.what)) {
    print(Describe(names_, *message));
    aggregator.Step(aggregator::MessageReceived{link.session, *message});
  } else if (auto* frame = std::get_if<PushFrame>(&item.what)) {
    if (std::exchange(corrupt_next_, false)) frame->chunks.front().value += 1;
    print(Describe(names_, *frame));
    aggregator.OnFrame(link.session, *frame);
  } else if (const auto* value = std::get_if<BlobFrame>(&item.what)) {
    print(Describe(*value));
    aggregator.OnFrame(link.session, *value);
  } else if (link.aggregator_open) {
    print("closes");
    link.aggregator_open = false;
    CloseSession(link, true);
  }
}

void World::DeliverDown(Link& link, Item item, int) {
  WorkerProcess& worker = *link.worker;
  const auto print = [&](const std::string& what) {
    PrintTravel(IsQuiet(item) ? Detail::kAll : Detail::kMessages, link.aggregator->name(),
                worker.name(), what);
  };
  if (const auto* message = std::get_if<ToWorker>(&item.what)) {
    print(Describe(names_, *message));
    worker.Step(client::MessageReceived{*message});
  } else if (auto* frame = std::get_if<ResultFrame>(&item.what)) {
    if (std::exchange(corrupt_next_, false)) frame->chunks.front().value += 1;
    print(Describe(names_, *frame));
    worker.OnFrame(*frame);
  } else if (const auto* value = std::get_if<BlobFrame>(&item.what)) {
    print(Describe(*value));
    worker.OnFrame(*value);
  } else {
    print("closes");
    link.worker_open = false;
    worker.Step(client::SessionDown{"The aggregator closed the session."});
  }
}

// Connecting takes longer than a closed session lingers.
void World::DeliverDial(const Dial& dial) {
  LoseClosed();
  WorkerProcess& worker = *dial.worker;
  AggregatorProcess* aggregator = FindAggregator(worker.target);
  if (aggregator == nullptr) {
    PrintTravel(Detail::kMessages, worker.name(), worker.target, "cannot connect");
    worker.Step(client::SessionDown{"Connection refused."});
    return;
  }
  PrintTravel(Detail::kAll, worker.name(), worker.target, "connects");
  const Link& link = network_.Connect(&worker, aggregator, worker.config().streams);
  aggregator->Step(aggregator::SessionOpened{link.session, link.token});
  worker.Step(client::SessionUp{});
}

void World::DeliverStreamDial(const Dial& dial) {
  Link* link = network_.FindToken(dial.token);
  if (link == nullptr || link->worker != dial.worker || !link->worker_open) return;
  if (!link->aggregator_open) {
    dial.worker->Step(client::StreamDown{dial.stream});
    return;
  }
  const Stream& stream = network_.NewStream(*link, dial.stream);
  link->aggregator->Step(aggregator::StreamOpened{stream.id, dial.token});
  if (stream.open) {
    dial.worker->Step(client::StreamUp{dial.stream});
  } else {
    dial.worker->Step(client::StreamDown{dial.stream});
  }
}

void World::Stabilize(const Choice& choice) {
  for (int i = 0; i < kMostDeliveries; ++i) {
    if (!DeliverOne(choice) && !LoseClosed()) return;
  }
  Violation("the network does not come to rest");
}

// ---- time

std::optional<absl::Time> World::NextDeadline() {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& aggregator : aggregators_) {
    if (!aggregator->alive || aggregator->stopped) continue;
    next = std::min(next, aggregator->aggregator().NextDeadline());
  }
  for (const auto& worker : workers_) {
    if (!worker->alive || worker->stopped) continue;
    next = std::min(next, worker->core().NextDeadline());
  }
  for (const Dial& dial : network_.dials()) {
    if (dial.due > now_) next = std::min(next, dial.due);
  }
  if (next == absl::InfiniteFuture()) return std::nullopt;
  return next;
}

void World::TickEveryone() {
  for (const auto& aggregator : aggregators_) {
    const bool runs = aggregator->alive && !aggregator->stopped;
    if (runs && aggregator->aggregator().NextDeadline() <= now_)
      aggregator->Step(aggregator::Tick{});
  }
  for (const auto& worker : workers_) {
    const bool runs = worker->alive && !worker->stopped;
    if (runs && worker->core().NextDeadline() <= now_) worker->Step(client::Tick{});
  }
}

bool World::LoseClosed() {
  absl::Time last = absl::InfinitePast();
  for (const auto& aggregator : aggregators_) {
    const absl::Time lingers_until = aggregator->aggregator().delivery().NextDeadline();
    const bool runs = aggregator->alive && !aggregator->stopped;
    if (runs && lingers_until != absl::InfiniteFuture()) last = std::max(last, lingers_until);
  }
  if (last == absl::InfinitePast()) return false;
  now_ = std::max(now_, last);
  TickEveryone();
  return true;
}

void World::Sleep(absl::Duration duration, const Choice& choice) {
  const absl::Time until = now_ + duration;
  int idle_ticks = 0;
  Stabilize(choice);
  while (true) {
    const std::optional<absl::Time> next = NextDeadline();
    if (!next.has_value() || *next > until) break;
    idle_ticks = *next > now_ ? 0 : idle_ticks + 1;
    if (idle_ticks > kMostTicksAtOnce) {
      Violation("a deadline that has passed comes again and again");
      return;
    }
    now_ = std::max(now_, *next);
    TickEveryone();
    Stabilize(choice);
  }
  now_ = until;
  TickEveryone();
  Stabilize(choice);
}

void World::CheckSameVersion(const std::string& worker, const RunId& run, const std::string& lane,
                             LaneIndex index, RoundNumber round, uint64_t chain,
                             const std::string& result) {
  const auto version = std::make_pair(chain, result);
  const auto [it, first] = verdicts_.emplace(std::make_tuple(run, lane, index, round), version);
  if (first || it->second == version) return;
  const std::string text = absl::StrCat(worker, " holds another version of round ", round,
                                        " of lane ", lane, ": a fork");
  forks_expected ? Print(Detail::kResults, absl::StrCat("  ", text)) : Violation(text);
}

}  // namespace basin::scenarios
