// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The transition tables: each pair of state and input occurs at most once, every state can be
// reached, every state but the last can be left, and the code follows the tables.

#include <set>
#include <utility>

#include "client/core/round.h"
#include "client/core/session.h"
#include "gtest/gtest.h"
#include "tests/client/core/harness.h"

namespace basin::client {
namespace {

template <typename Row, size_t N>
void CheckTable(const Row (&table)[N], uint8_t states, uint8_t inputs) {
  std::set<std::pair<int, int>> seen;
  std::set<int> reached = {0};
  std::set<int> left;
  std::set<int> used;
  for (const Row& row : table) {
    EXPECT_TRUE(seen.emplace(static_cast<int>(row.from), static_cast<int>(row.input)).second)
        << "twice: " << static_cast<int>(row.from) << ", " << static_cast<int>(row.input);
    EXPECT_NE(row.what[0], '\0');
    reached.insert(static_cast<int>(row.to));
    left.insert(static_cast<int>(row.from));
    used.insert(static_cast<int>(row.input));
  }
  EXPECT_EQ(reached.size(), states);
  EXPECT_EQ(left.size(), states - 1u) << "only the last state is final";
  EXPECT_EQ(left.count(states - 1), 0u);
  EXPECT_EQ(used.size(), inputs);
}

TEST(TablesTest, SessionTableIsComplete) { CheckTable(kSessionTransitions, 5, 7); }

TEST(TablesTest, RoundTableIsComplete) { CheckTable(kRoundTransitions, 7, 7); }

// Tries every input in every state: an input that the table does not list changes nothing.
TEST(TablesTest, SessionGoesByItsTable) {
  const Config config = TestConfig();
  // The inputs that lead to each phase.
  const std::vector<std::vector<SessionInput>> paths = {
      {},
      {SessionInput::kStart},
      {SessionInput::kStart, SessionInput::kUp},
      {SessionInput::kStart, SessionInput::kUp, SessionInput::kWelcome},
      {SessionInput::kStop},
  };
  for (size_t from = 0; from < paths.size(); ++from) {
    for (uint8_t input = 0; input < 7; ++input) {
      Session session(config);
      std::vector<Action> actions;
      for (const SessionInput step : paths[from]) session.Apply(config, step, {}, actions);
      ASSERT_EQ(static_cast<size_t>(session.phase()), from);
      const Session before = session;
      actions.clear();
      const bool taken = session.Apply(config, static_cast<SessionInput>(input), {}, actions);
      const SessionTransition* row = nullptr;
      for (const SessionTransition& candidate : kSessionTransitions) {
        if (static_cast<size_t>(candidate.from) == from &&
            static_cast<uint8_t>(candidate.input) == input) {
          row = &candidate;
        }
      }
      EXPECT_EQ(taken, row != nullptr);
      if (row == nullptr) {
        EXPECT_EQ(session, before);
        EXPECT_TRUE(actions.empty());
      } else {
        EXPECT_EQ(session.phase(), row->to);
        // The client sends Hello and the messages after the welcome; the session does the rest.
        Actions done{actions};
        const std::string what = row->what;
        EXPECT_EQ(done.Has<OpenSession>(), what.find("OpenSession") != std::string::npos) << what;
        EXPECT_EQ(done.Has<CloseSession>(), what.find("CloseSession") != std::string::npos) << what;
      }
    }
  }
}

TEST(TablesTest, RoundGoesByItsTable) {
  const std::vector<std::vector<RoundInput>> paths = {
      {},
      {RoundInput::kCommit},
      {RoundInput::kCommit, RoundInput::kAllSent},
      {RoundInput::kWithdraw},
      {RoundInput::kCommittedVerdict},
      {RoundInput::kRefused},
      {RoundInput::kFail},
  };
  for (size_t from = 0; from < paths.size(); ++from) {
    for (uint8_t input = 0; input < 7; ++input) {
      Round round(1, BeginRound{}, false);
      for (const RoundInput step : paths[from]) ASSERT_TRUE(round.Apply(step));
      ASSERT_EQ(static_cast<size_t>(round.state()), from);
      bool listed = false;
      RoundState to = round.state();
      for (const RoundTransition& row : kRoundTransitions) {
        if (static_cast<size_t>(row.from) != from || static_cast<uint8_t>(row.input) != input) {
          continue;
        }
        listed = true;
        to = row.to;
      }
      EXPECT_EQ(round.Apply(static_cast<RoundInput>(input)), listed);
      EXPECT_EQ(round.state(), to);
    }
  }
}

}  // namespace
}  // namespace basin::client
