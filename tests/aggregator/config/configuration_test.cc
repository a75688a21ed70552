// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// From texts to Settings: the order of the sources, and the errors for mistakes.

#include "aggregator/config/configuration.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "aggregator/config/describe.h"
#include "aggregator/config/table.h"
#include "aggregator/config/yaml.h"
#include "aggregator/text/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace basin::aggregator {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

const Machine kMachine = {1000 * kMiB, 4};

// The texts of a user, in all sources.
struct Written {
  std::vector<std::string> flags;
  std::vector<std::string> variables;
  std::string file;
};

absl::StatusOr<Configuration> Read(const Written& written) {
  const std::vector<Option> table = OptionTable();
  Findings findings;
  ReadYaml(table, "basind.yaml", written.file, findings);
  ReadEnvironment(table, written.variables, findings);
  ReadFlags(table, {}, written.flags, findings);
  return Configure(table, findings, kMachine);
}

std::string ProblemsOf(const Written& written) {
  const absl::StatusOr<Configuration> configuration = Read(written);
  return configuration.ok() ? "" : std::string(configuration.status().message());
}

absl::Duration LeaseOf(const Written& written) {
  const absl::StatusOr<Configuration> configuration = Read(written);
  EXPECT_TRUE(configuration.ok()) << configuration.status();
  return configuration.ok() ? configuration->settings.core.lease : absl::ZeroDuration();
}

TEST(Table, NamesAreDifferentHoweverTheyAreWritten) {
  std::set<std::string> keys, flags, variables;
  for (const Option& option : OptionTable()) {
    EXPECT_TRUE(keys.insert(option.key).second) << option.key;
    EXPECT_TRUE(flags.insert(FlagOf(option.key)).second) << option.key;
    EXPECT_TRUE(variables.insert(VariableOf(option.key)).second) << option.key;
    EXPECT_FALSE(option.help.empty()) << option.key;
    EXPECT_FALSE(SectionHelp(SectionOf(option.key)).empty()) << option.key;
  }
  EXPECT_EQ("--round-late-warning", FlagOf("round.late_warning"));
  EXPECT_EQ("BASIN_ROUND_LATE_WARNING", VariableOf("round.late_warning"));
}

TEST(Table, OptionsOfASectionLieTogether) {
  std::set<std::string> over;
  std::string section;
  for (const Option& option : OptionTable()) {
    const std::string here(SectionOf(option.key));
    if (here != section) {
      EXPECT_TRUE(over.insert(here).second) << here;
    }
    section = here;
  }
}

// Kubernetes gives a container BASIN_PORT and the like for a service that is called basin.
TEST(Table, NoVariableIsOneThatKubernetesMakes) {
  for (const Option& option : OptionTable()) {
    EXPECT_THAT(VariableOf(option.key), Not(AllOf(HasSubstr("_PORT"), HasSubstr("BASIN_"))));
    EXPECT_THAT(VariableOf(option.key), Not(HasSubstr("_SERVICE_")));
  }
}

TEST(Table, DefaultsAreThoseOfTheParts) {
  const absl::StatusOr<Configuration> configuration = Read({});
  ASSERT_TRUE(configuration.ok()) << configuration.status();
  const Settings& settings = configuration->settings;
  const Settings parts;
  for (const Option& option : OptionTable()) {
    if (option.fallback == "auto" || option.key == "health.live_within" ||
        option.key.find(".listen") != std::string::npos) {
      continue;  // The parts have no such default.
    }
    // The core counts none by default, because exhaustive searches would see a state for each.
    if (option.key == "worker.fruitless_joins") continue;
    EXPECT_EQ(Show(option, parts), Show(option, settings)) << option.key;
  }
  EXPECT_EQ("127.0.0.1:29600", settings.grpc_address);
  EXPECT_EQ("127.0.0.1:29601", settings.http_address);
  EXPECT_EQ("auto", settings.local_socket);
  EXPECT_FALSE(settings.core.state_file);
}

TEST(Table, AutomaticValuesFollowFromTheMachine) {
  const absl::StatusOr<Configuration> configuration = Read({});
  ASSERT_TRUE(configuration.ok()) << configuration.status();
  EXPECT_EQ(400 * kMiB, configuration->settings.core.memory_bytes);
  EXPECT_EQ(2u, configuration->settings.reduce_threads);
}

TEST(Table, AnAutomaticFrameFitsTheWindowsAndTheBudget) {
  const auto frame = [](std::vector<std::string> flags) {
    Written written;
    written.flags = std::move(flags);
    const absl::StatusOr<Configuration> configuration = Read(written);
    EXPECT_TRUE(configuration.ok()) << configuration.status();
    return configuration->settings.core.frame_bytes;
  };
  EXPECT_EQ(3840 * kKiB, frame({"--memory-budget=1GiB"}));
  EXPECT_EQ(1536 * kKiB, frame({})) << "of 400 MiB";
  EXPECT_EQ(256 * kKiB, frame({"--memory-budget=64MiB"}));
  EXPECT_EQ(512 * kKiB, frame({"--memory-window=700KiB"}));
  EXPECT_EQ(kMiB, frame({"--memory-result-window=1MiB", "--memory-frame=auto"}));
  EXPECT_EQ(2 * kMiB, frame({"--memory-frame=2MiB"}));
}

TEST(Sources, FlagBeforeEnvironmentBeforeFileBeforeDefault) {
  Written written;
  EXPECT_EQ(absl::Seconds(5), LeaseOf(written));
  written.file = "worker: {lease: 6s}";
  EXPECT_EQ(absl::Seconds(6), LeaseOf(written));
  written.variables = {"BASIN_WORKER_LEASE=7s", "HOME=/"};
  EXPECT_EQ(absl::Seconds(7), LeaseOf(written));
  written.flags = {"--worker-lease=8s"};
  EXPECT_EQ(absl::Seconds(8), LeaseOf(written));
}

TEST(Sources, EachValueKnowsWhereItCameFrom) {
  Written written;
  written.file = "# ours\nworker:\n  lease: 6s\n";
  written.variables = {"BASIN_LOG_LEVEL=debug"};
  written.flags = {"--state-file", "/var/lib/basin/state"};
  const absl::StatusOr<Configuration> configuration = Read(written);
  ASSERT_TRUE(configuration.ok()) << configuration.status();
  const std::string printed = PrintConfiguration(OptionTable(), *configuration, true);
  EXPECT_THAT(printed, HasSubstr("  lease: 6s  # file: basind.yaml:3\n"));
  EXPECT_THAT(printed, HasSubstr("  level: debug  # environment: BASIN_LOG_LEVEL\n"));
  EXPECT_THAT(printed, HasSubstr("  file: \"/var/lib/basin/state\"  # flag: --state-file\n"));
  EXPECT_THAT(printed, HasSubstr("  heartbeat: 500ms  # default\n"));
  EXPECT_THAT(printed, HasSubstr("  budget: 400MiB  # default: auto\n"));
}

TEST(Sources, WhatIsPrintedIsReadAsTheSame) {
  Written written;
  written.flags = {"--grpc-insecure", "--grpc-listen=[::]:29600", "--round-late-policy=evict",
                   "--round-evict-late-after", "90s"};
  written.file = "state: {file: 'a \"#: path'}\nhttp: {listen: none}";
  const absl::StatusOr<Configuration> first = Read(written);
  ASSERT_TRUE(first.ok()) << first.status();
  const std::string printed = PrintConfiguration(OptionTable(), *first, true);
  const absl::StatusOr<Configuration> second = Read({{}, {}, printed});
  ASSERT_TRUE(second.ok()) << second.status() << printed;
  EXPECT_EQ(PrintConfiguration(OptionTable(), *first, false),
            PrintConfiguration(OptionTable(), *second, false));
}

TEST(Flags, AreReadWithTheirValueBehindThemOrAttached) {
  EXPECT_EQ(absl::Seconds(8), LeaseOf({{"--worker-lease", "8s"}, {}, ""}));
  EXPECT_EQ(absl::Seconds(8), LeaseOf({{"--worker-lease=8s"}, {}, ""}));
}

TEST(Flags, ThatAreTrueOrFalseNeedNoValue) {
  EXPECT_TRUE(Read({{"--grpc-insecure", "--log-level=info"}, {}, ""})->settings.insecure);
  EXPECT_FALSE(Read({{"--grpc-insecure=false"}, {}, ""})->settings.insecure);
}

TEST(Flags, ThatAreTrueOrFalseTakeTheWordsThatPeopleUse) {
  for (const char* const on : {"1", "yes", "True"}) {
    const auto read = Read({{}, {absl::StrCat("BASIN_GRPC_INSECURE=", on)}, ""});
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(read->settings.insecure) << on;
  }
  EXPECT_FALSE(Read({{"--grpc-insecure=0"}, {}, ""})->settings.insecure);
  EXPECT_THAT(ProblemsOf({{"--grpc-insecure=2"}, {}, ""}),
              HasSubstr("it must be true, false, yes, no, 1 or 0"));
}

TEST(Flags, OfTheProgramAreGivenBack) {
  Findings findings;
  const std::vector<ProgramFlag> own = {{"--config", true}, {"--sources", false}};
  const std::map<std::string, std::string> found = ReadFlags(
      OptionTable(), own, {"--config", "a.yaml", "--sources", "--log-level=info"}, findings);
  EXPECT_THAT(findings.problems, IsEmpty());
  EXPECT_THAT(findings.given, SizeIs(1));
  EXPECT_EQ((std::map<std::string, std::string>{{"--config", "a.yaml"}, {"--sources", ""}}), found);
}

TEST(Mistakes, AnUnknownFlagIsAnsweredWithTheNearest) {
  EXPECT_THAT(ProblemsOf({{"--worker-leese=8s"}, {}, ""}),
              AllOf(HasSubstr("--worker-leese"), HasSubstr("did you mean --worker-lease?")));
  EXPECT_THAT(ProblemsOf({{"--worker-leese", "8s"}, {}, ""}), Not(HasSubstr("8s")));
  EXPECT_THAT(ProblemsOf({{"--gradients"}, {}, ""}), HasSubstr("see --help"));
}

TEST(Mistakes, AFlagWithoutItsValueOrGivenTwiceIsNamed) {
  EXPECT_THAT(ProblemsOf({{"--worker-lease"}, {}, ""}), HasSubstr("--worker-lease=5s"));
  EXPECT_THAT(ProblemsOf({{"--worker-lease", "--grpc-insecure"}, {}, ""}),
              HasSubstr("--worker-lease needs a value"));
  EXPECT_THAT(ProblemsOf({{"--worker-lease=6s", "--worker-lease=7s"}, {}, ""}),
              HasSubstr("set twice"));
  EXPECT_THAT(ProblemsOf({{"lease"}, {}, ""}), HasSubstr("\"lease\" is not a flag"));
}

TEST(Mistakes, AnUnknownVariableIsAnsweredWithTheNearest) {
  EXPECT_THAT(ProblemsOf({{}, {"BASIN_WORKER_LEASES=8s"}, ""}),
              HasSubstr("did you mean BASIN_WORKER_LEASE?"));
}

TEST(Mistakes, AVariableThatIsLikeNoOptionIsIgnoredWithAReport) {
  Findings findings;
  ReadEnvironment(OptionTable(), {"BASIN_OF_OUR_OWN=1", "BASIN_DATA_DIR=/data"}, findings);
  EXPECT_THAT(findings.problems, testing::IsEmpty());
  EXPECT_THAT(findings.ignored, ElementsAre(HasSubstr("\"BASIN_OF_OUR_OWN\" is not an option"),
                                            HasSubstr("BASIN_DATA_DIR")));
}

TEST(Mistakes, VariablesOfClientsAndOfKubernetesAreNone) {
  EXPECT_EQ("", ProblemsOf({{},
                            {"BASIN_ADDRESS=basin:29600", "BASIN_MIN_WORKERS=3",
                             "BASIN_SERVICE_HOST=10.0.0.1", "BASIN_PORT=tcp://10.0.0.1:29600",
                             "BASIN_PORT_29600_TCP_ADDR=10.0.0.1", "BASIN_SERVICE_PORT_GRPC=29600",
                             "BASIN_CONFIG=/etc/basind.yaml", "PATH=/bin"},
                            ""}));
}

TEST(Mistakes, AWrongValueIsNamedWithItsPlaceAndTheWayOut) {
  EXPECT_THAT(ProblemsOf({{"--worker-lease=8"}, {}, ""}),
              AllOf(HasSubstr("--worker-lease: worker.lease is \"8\""), HasSubstr("8s")));
  EXPECT_THAT(ProblemsOf({{}, {"BASIN_MEMORY_FRAME=300KiB"}, ""}),
              AllOf(HasSubstr("BASIN_MEMORY_FRAME"), HasSubstr("multiple of 256KiB")));
  EXPECT_THAT(ProblemsOf({{}, {}, "log:\n  level: warn\n"}),
              AllOf(HasSubstr("basind.yaml:2"), HasSubstr("did you mean warning?")));
  EXPECT_THAT(ProblemsOf({{"--limits-workers=10001"}, {}, ""}), HasSubstr("at most 10000"));
  EXPECT_THAT(ProblemsOf({{"--worker-lease=1ms"}, {}, ""}), HasSubstr("at least 50ms"));
  EXPECT_THAT(ProblemsOf({{"--grpc-listen=29600"}, {}, ""}), HasSubstr("host:port"));
  EXPECT_THAT(ProblemsOf({{"--reduce-device=gpu"}, {}, ""}),
              HasSubstr("reduce.device is \"gpu\": it must be cpu, cuda (all GPUs), cuda:N"));
  for (const char* wrong : {"/run/basin", "file:", "file:/", "file:run/basin", "etcd:here:2379",
                            "kubernetes:", "kubernetes:a/", "kubernetes:/a", "kubernetes:a/b/c",
                            "kubernetes:a/B", "kubernetes:-a"}) {
    EXPECT_THAT(ProblemsOf({{absl::StrCat("--standby-authority=", wrong)}, {}, ""}),
                AllOf(HasSubstr(absl::StrCat("standby.authority is \"", wrong)),
                      HasSubstr("file:/run/basin/leader"), HasSubstr("kubernetes:training/basin")));
  }
  for (const char* right : {"none", "file:/run/basin/", "kubernetes:a", "kubernetes:a-1/b.c",
                            "etcd:a:2379,b:2379/basin"}) {
    EXPECT_EQ(ProblemsOf({{absl::StrCat("--standby-authority=", right)}, {}, ""}), "") << right;
  }
  EXPECT_THAT(ProblemsOf({{"--standby-lease=1ms"}, {}, ""}), HasSubstr("at least 200ms"));
}

TEST(Mistakes, AreToldAllAtOnce) {
  const std::string problems =
      ProblemsOf({{"--worker-lease=8"}, {"BASIN_LOG_LEVEL=loud"}, "reduce: {thread: 1}"});
  EXPECT_THAT(problems, AllOf(HasSubstr("worker.lease"), HasSubstr("log.level"),
                              HasSubstr("reduce.threads")));
}

TEST(Mistakes, ValuesThatDoNotGoTogetherAreNamedBoth) {
  EXPECT_THAT(ProblemsOf({{"--worker-lease=1s"}, {}, ""}),
              AllOf(HasSubstr("worker.lease is 1s"), HasSubstr("worker.heartbeat (500ms)")));
  EXPECT_THAT(ProblemsOf({{"--worker-closed-lease=6s"}, {}, ""}), HasSubstr("worker.lease (5s)"));
  EXPECT_THAT(ProblemsOf({{"--round-late-policy=evict"}, {}, ""}),
              HasSubstr("round.evict_late_after"));
  EXPECT_THAT(ProblemsOf({{"--round-evict-late-after=60s"}, {}, ""}),
              HasSubstr("round.late_policy"));
  EXPECT_THAT(ProblemsOf({{"--memory-window=256KiB", "--memory-frame=1MiB"}, {}, ""}),
              HasSubstr("memory.frame (1MiB)"));
  EXPECT_THAT(ProblemsOf({{"--limits-lane-names=10"}, {}, ""}), HasSubstr("limits.lanes (1024)"));
  EXPECT_THAT(ProblemsOf({{"--http-listen=127.0.0.1:29600"}, {}, ""}), HasSubstr("port 29600"));
  EXPECT_THAT(ProblemsOf({{"--standby-authority=file:/run/l", "--state-file=/s"}, {}, ""}),
              AllOf(HasSubstr("state.file is /s"), HasSubstr("standby.authority is file:/run/l"),
                    HasSubstr("set state.file to none")));
  EXPECT_EQ(ProblemsOf({{"--standby-authority=file:/run/l"}, {}, ""}), "");
}

TEST(Mistakes, WhatIsForEtcdNeedsOneAndAPasswordNeedsEncryption) {
  EXPECT_THAT(
      ProblemsOf({{"--standby-etcd-ca=/ca", "--standby-authority=file:/run/l"}, {}, ""}),
      AllOf(HasSubstr("standby.etcd_ca is /ca"), HasSubstr("standby.authority is file:/run/l")));
  EXPECT_THAT(ProblemsOf({{"--standby-etcd-user-file=/u"}, {}, ""}),
              AllOf(HasSubstr("standby.etcd_user_file is /u"), HasSubstr("is none")));
  const std::string etcd = "--standby-authority=etcd:127.0.0.1:2379,there:2379/basin";
  EXPECT_THAT(ProblemsOf({{etcd, "--standby-etcd-user-file=/u"}, {}, ""}),
              AllOf(HasSubstr("there:2379"), HasSubstr("without encryption")));
  EXPECT_THAT(ProblemsOf({{etcd, "--standby-etcd-cert=/c"}, {}, ""}),
              AllOf(HasSubstr("set both or neither"), HasSubstr("without TLS")));
  for (const std::vector<std::string>& flags : std::vector<std::vector<std::string>>{
           {etcd},
           {etcd, "--standby-etcd-ca=/ca", "--standby-etcd-user-file=/u"},
           {etcd, "--standby-etcd-ca=/ca", "--standby-etcd-cert=/c", "--standby-etcd-key=/k"},
           {"--standby-authority=etcd:[::1]:2379/basin", "--standby-etcd-user-file=/u"}}) {
    EXPECT_EQ(ProblemsOf({flags, {}, ""}), "") << flags.back();
  }
}

TEST(Mistakes, AnAddressThatOthersReachNeedsAWord) {
  const std::string problems = ProblemsOf({{"--grpc-listen=0.0.0.0:29600"}, {}, ""});
  EXPECT_THAT(problems, AllOf(HasSubstr("0.0.0.0:29600"), HasSubstr("grpc.insecure")));
  EXPECT_EQ("", ProblemsOf({{"--grpc-listen=0.0.0.0:29600", "--grpc-insecure"}, {}, ""}));
  const std::vector<std::string> tls = {"--grpc-listen=0.0.0.0:29600", "--tls-cert=c",
                                        "--tls-key=k"};
  EXPECT_THAT(ProblemsOf({tls, {}, ""}), HasSubstr("set auth.file or tls.client_ca"));
  for (const char* more : {"--auth-file=f", "--tls-client-ca=ca"}) {
    std::vector<std::string> flags = tls;
    flags.push_back(more);
    EXPECT_EQ("", ProblemsOf({flags, {}, ""}));
  }
  EXPECT_EQ("", ProblemsOf({{"--http-listen=0.0.0.0:29601"}, {}, ""}));  // Only reads.
}

TEST(Mistakes, TlsNeedsACertificateAndItsKey) {
  EXPECT_THAT(ProblemsOf({{"--tls-cert=c.pem"}, {}, ""}),
              AllOf(HasSubstr("tls.cert is c.pem"), HasSubstr("tls.key is none; set both")));
  EXPECT_THAT(ProblemsOf({{}, {"BASIN_TLS_KEY=k.pem"}, ""}),
              AllOf(HasSubstr("tls.key is k.pem"), HasSubstr("tls.cert is none; set both")));
  EXPECT_THAT(ProblemsOf({{"--tls-client-ca=ca.pem"}, {}, ""}),
              AllOf(HasSubstr("tls.client_ca is ca.pem"), HasSubstr("set tls.cert and tls.key")));
}

TEST(Yaml, AnEmptyFileGivesTheDefaults) {
  for (const char* file : {"", "# nothing\n", "---\n", "~\n", "worker:\n"}) {
    EXPECT_EQ("", ProblemsOf({{}, {}, file})) << file;
  }
}

TEST(Yaml, AnUnknownKeyIsAnsweredWithTheNearest) {
  EXPECT_THAT(ProblemsOf({{}, {}, "worker:\n  leese: 5s\n"}),
              AllOf(HasSubstr("basind.yaml:2"), HasSubstr("did you mean worker.lease?")));
  EXPECT_THAT(ProblemsOf({{}, {}, "lease: 5s\n"}), HasSubstr("did you mean worker.lease?"));
  EXPECT_THAT(ProblemsOf({{}, {}, "a: {b: {c: d}}\n"}), HasSubstr("\"a.b.c\" is not an option"));
  EXPECT_THAT(ProblemsOf({{}, {}, "worker: 5s\n"}), HasSubstr("worker is a section"));
}

TEST(Yaml, WhatIsGivenTwiceOrWithoutValueIsNamed) {
  EXPECT_THAT(ProblemsOf({{}, {}, "worker:\n  lease: 5s\n  lease: 6s\n"}),
              AllOf(HasSubstr("basind.yaml:3"), HasSubstr("first in line 2")));
  EXPECT_THAT(ProblemsOf({{}, {}, "worker:\n  lease:\n"}), HasSubstr("has no value"));
}

TEST(Yaml, WhatAFileOfOptionsDoesNotNeedIsRefused) {
  EXPECT_THAT(ProblemsOf({{}, {}, "worker: &w {lease: 5s}\n"}), HasSubstr("anchors"));
  EXPECT_THAT(ProblemsOf({{}, {}, "worker: *w\n"}), HasSubstr("anchors"));
  EXPECT_THAT(ProblemsOf({{}, {}, "worker: {lease: !!str 5s}\n"}), HasSubstr("tags"));
  EXPECT_THAT(ProblemsOf({{}, {}, "worker: [lease]\n"}), HasSubstr("list"));
  EXPECT_THAT(ProblemsOf({{}, {}, "a: 1\n---\nb: 2\n"}), HasSubstr("second document"));
  EXPECT_THAT(ProblemsOf({{}, {}, "just text\n"}), HasSubstr("sections"));
  EXPECT_THAT(ProblemsOf({{}, {}, "{a: 1}: b\n"}), HasSubstr("sections"));
}

TEST(Yaml, WhatIsNoYamlIsRefusedWithItsLine) {
  EXPECT_THAT(ProblemsOf({{}, {}, "worker:\n  lease: 5s\n bad\n"}),
              AllOf(HasSubstr("basind.yaml:"), HasSubstr("this is not YAML")));
  EXPECT_THAT(ProblemsOf({{}, {}, std::string("a\0b", 3)}), HasSubstr("not YAML"));
}

TEST(Yaml, DepthAndLengthAndMistakesAreBounded) {
  std::string deep;
  for (int i = 0; i < 10000; ++i) deep += "{a: ";
  EXPECT_NE("", ProblemsOf({{}, {}, deep}));
  EXPECT_THAT(ProblemsOf({{}, {}, std::string(kMaxFileBytes + 1, ' ')}), HasSubstr("at most"));
  std::string wrong;
  for (int i = 0; i < 1000; ++i) wrong += "a" + std::to_string(i) + ": 1\n";
  const std::string problems = ProblemsOf({{}, {}, wrong});
  EXPECT_EQ(19, std::count(problems.begin(), problems.end(), '\n'));
}

TEST(Files, AFileThatIsNotThereIsAMistake) {
  Findings findings;
  LoadFile(OptionTable(), ::testing::TempDir() + "/is-not-there.yaml", findings);
  EXPECT_THAT(findings.problems,
              ElementsAre(AllOf(HasSubstr("is-not-there.yaml"), HasSubstr("No such file"))));
  LoadFile(OptionTable(), ::testing::TempDir(), findings);
  EXPECT_THAT(findings.problems, SizeIs(2));
}

TEST(Files, AreReadWhole) {
  const std::string path = ::testing::TempDir() + "/basind-config-test.yaml";
  std::ofstream(path) << "worker: {lease: 9s}\n";
  Findings findings;
  LoadFile(OptionTable(), path, findings);
  std::filesystem::remove(path);
  EXPECT_THAT(findings.problems, IsEmpty());
  ASSERT_THAT(findings.given, SizeIs(1));
  EXPECT_EQ("9s", findings.given[0].text);
  EXPECT_EQ(path + ":1", findings.given[0].origin);
}

TEST(Schema, HasEveryOptionWithItsDefault) {
  const auto schema = nlohmann::json::parse(JsonSchema(OptionTable()));
  EXPECT_FALSE(schema["additionalProperties"]);
  for (const Option& option : OptionTable()) {
    const std::string section(SectionOf(option.key));
    const auto& row = schema["properties"][section]["properties"];
    EXPECT_FALSE(schema["properties"][section]["additionalProperties"]);
    const std::string name = option.key.substr(section.size() + 1);
    ASSERT_TRUE(row.contains(name)) << option.key;
    EXPECT_TRUE(row[name].contains("default")) << option.key;
  }
}

TEST(Help, NamesEveryFlag) {
  const std::string help = FlagHelp(OptionTable());
  const std::string page = MarkdownPage(OptionTable());
  for (const Option& option : OptionTable()) {
    EXPECT_THAT(help, HasSubstr(FlagOf(option.key) + "="));
    EXPECT_THAT(page, HasSubstr("| `" + option.key + "` |"));
  }
}

}  // namespace
}  // namespace basin::aggregator
