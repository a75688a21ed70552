// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/ctl/bench.h"
#include "aggregator/ctl/changes.h"
#include "aggregator/ctl/command.h"
#include "aggregator/ctl/completion.h"
#include "aggregator/ctl/doctor.h"
#include "aggregator/ctl/plan.h"
#include "aggregator/ctl/queries.h"
#include "aggregator/ctl/secrets.h"
#include "aggregator/ctl/timeline.h"
#include "aggregator/ctl/top.h"
#include "aggregator/ctl/version.h"

namespace basin::aggregator {

namespace {

// More than a shell passes.
constexpr size_t kMostFiles = 1000000;

}  // namespace

const std::vector<Command>& Commands() {
  static const std::vector<Command>& commands = *new std::vector<Command>{
      {"status",
       "[-w] [--interval=DURATION] [--times=N]",
       "show the service and its jobs",
       "Shows the state of each job and, while it waits, the cause.",
       {"basinctl status", "basinctl status -w", "basinctl status -o json"},
       1,
       1,
       RunStatus},
      {"jobs",
       "[-w] [--interval=DURATION] [--times=N]",
       "list the jobs",
       "Like `basinctl status`, without the line of the service.",
       {"basinctl jobs", "basinctl jobs -o yaml"},
       1,
       1,
       RunJobs},
      {"goodput",
       "JOB [-w] [--interval=DURATION] [--times=N]",
       "show how much of the workers' time became committed work",
       "Shows what became of the time of the job's members since this aggregator knows the job:\n"
       "worked, or where it was lost, and for which workers the others waited longest.\n"
       "docs/monitoring.md defines each part.",
       {"basinctl goodput vision", "basinctl goodput vision -o json"},
       2,
       2,
       RunGoodput},
      {"top",
       "[--interval=DURATION] [--times=N]",
       "watch the rounds of all jobs",
       "Shows for each job its rounds per second, the mean time of a round since the last\n"
       "refresh, its memory, and the worker that the open round waits for. On a terminal\n"
       "the screen changes every 2 s, until Ctrl-C; elsewhere each refresh prints a line\n"
       "for each job. --interval: another interval. --times: the number of refreshes.",
       {"basinctl top", "basinctl top --interval=10s --times=6 > rounds.log"},
       1,
       1,
       RunTop},
      {"limits",
       "[-w] [--interval=DURATION] [--times=N]",
       "show the limits, how much of each is used, and what memory is in use for",
       "The names are those of the configuration (docs/configuration.md). memory.budget is shown\n"
       "for the service and for each job: what it reserves. Below is the memory that the process\n"
       "has taken, by the kinds of the metric basin_buffer_bytes (docs/monitoring.md), which do "
       "not\n"
       "overlap.",
       {"basinctl limits", "basinctl limits -o json"},
       1,
       1,
       RunLimits},
      {"members",
       "JOB [-w] [--interval=DURATION] [--times=N]",
       "list the workers of a job",
       "Lists the members by rank, then joiners, spares, and workers that have finished.",
       {"basinctl members vision"},
       2,
       2,
       RunMembers},
      {"rounds",
       "JOB [--lane=LANE] [--last=N] [-w] [--interval=DURATION] [--times=N]",
       "show open rounds and what they wait for, and past rounds",
       "Names a worker that each open round waits for, and the tensor. --last: the number of "
       "past\n"
       "rounds of each lane (2); the aggregator remembers only a few. Below, for each of them: "
       "who\n"
       "arrived when after the first, who was last and by how much, what it still owed (a tensor,\n"
       "\"begin\" or \"commit\") and since when the others waited for it alone; of those 50 are\n"
       "remembered. -o json prints the whole reply: op, scales, divisor, effective batch, norms,\n"
       "contributors, arrivals.",
       {"basinctl rounds vision", "basinctl rounds vision --lane=gradients --last=1 -o json"},
       2,
       2,
       RunRounds},
      {"shards",
       "[-w] [--interval=DURATION] [--times=N]",
       "show the processes that hold gradients, and which part of each job",
       "Lists the aggregator and the shards that are connected (docs/scale.md): how long each is "
       "up,\n"
       "the bytes that it holds, has received and has sent, when it last reported something, and "
       "the\n"
       "median time from the order to reduce until the answer, with the network between. A shard "
       "that\n"
       "needs much longer than the others is slow. Below, for each job: the part that each has, "
       "and\n"
       "who cannot reach it or why the job does without it.",
       {"basinctl shards", "basinctl shards -w --interval=5s", "basinctl shards -o json"},
       1,
       1,
       RunShards},
      {"events",
       "[-f] [--job=JOB] [--after=N]",
       "show past events; with -f, follow new ones",
       "Shows the numbered decisions of the aggregator with their reasons. -f continues until "
       "Ctrl-C,\n"
       "or, with --job, until that job ends. --after: only events with a higher number.",
       {"basinctl events --job=vision", "basinctl events -f --after=1500"},
       1,
       1,
       RunEvents},
      {"timeline",
       "--job=JOB [--lane=LANE] [--rounds=N] [--file=FILE] | --merge FILE... [--job=JOB]",
       "write a trace of a job's last rounds, for ui.perfetto.dev",
       "Writes the rounds that the aggregator remembers (50 of each gradient lane, or the last\n"
       "--rounds): how long contributions were gathered, waited for and reduced, and when that\n"
       "of each worker arrived. Workers with BASIN_TIMELINE write traces of their own; --merge\n"
       "joins their files, and those of this command, into one, with arrows from each worker's\n"
       "push through the aggregator to its result. With --job, the job's last rounds are in it\n"
       "too. --file: instead of standard output. Without --job it needs no aggregator.",
       {"basinctl timeline --job=vision --file=job.json",
        "basinctl timeline --merge traces/*.json --job=vision --file=all.json",
        "basinctl timeline --merge traces/*.json job.json > all.json"},
       1,
       kMostFiles,
       nullptr,
       RunTimeline},
      {"drain",
       "worker JOB WORKER | service",
       "stop a worker or the aggregator gracefully",
       "A drained worker finishes its open rounds and is left out of the next generation.\n"
       "The service admits no more workers, ends the open rounds within drain.grace, and\n"
       "exits.",
       {"basinctl drain worker vision w-7", "basinctl drain service"},
       2,
       4,
       RunDrain},
      {"step-down",
       "",
       "let another aggregator take over",
       "For an aggregator that leads others (standby.authority). Open rounds end within\n"
       "drain.grace, then it gives up the lead and stands by. Workers find the new leader by\n"
       "themselves; no step is lost. If nobody takes over within two leases, it leads again.",
       {"basinctl step-down", "basinctl step-down --address=10.0.0.7:29602 --timeout=1m"},
       1,
       1,
       RunStepDown},
      {"evict",
       "JOB WORKER [--reason=TEXT]",
       "end a worker's membership now",
       "If the worker has not sent its whole contribution, the open round continues without\n"
       "it. The worker receives the reason, and can rejoin with the state of the others.",
       {"basinctl evict vision w-7 --reason='wrong data set'"},
       3,
       3,
       RunEvict},
      {"report-exit",
       "JOB WORKER [--status=N]",
       "report that a worker's process has ended",
       "For launchers: without this report, the aggregator waits until the worker's lease\n"
       "expires. --status: the exit status of the process, or minus the signal that ended it.",
       {"basinctl report-exit vision w-7 --status=-9"},
       3,
       3,
       RunReportExit},
      {"pause",
       "JOB",
       "suspend a job",
       "No round opens or ends until `basinctl resume`. Nothing is lost.",
       {"basinctl pause vision"},
       2,
       2,
       RunPause},
      {"resume",
       "JOB",
       "resume a suspended job",
       "Ends a suspension by `basinctl pause`.",
       {"basinctl resume vision"},
       2,
       2,
       RunResume},
      {"job",
       "set JOB [--min=N] [--max=N] [--loss-policy=POLICY] [--late-policy=POLICY]",
       "change the settings of a running job",
       "--min: the job pauses below this number of workers. --max: workers beyond it wait as\n"
       "spares. --loss-policy: shrink or abort, for a round that loses a worker.\n"
       "--late-policy: wait, evict, leave_out or carry, for a worker that is late. The new\n"
       "values must be within the bounds of the configuration. They hold until another run of\n"
       "the job begins or the job is forgotten (job.idle_timeout); without state.file, a restart\n"
       "of the aggregator ends them, too.",
       {"basinctl job set vision --min=2", "basinctl job set vision --max=16 --loss-policy=abort"},
       3,
       3,
       RunJob},
      {"dump",
       "[JOB]",
       "print the state of the aggregator, for a bug report",
       "The format is for people and may change. It contains names and numbers, but no\n"
       "gradients and no tokens. Without a job it needs a grant for all jobs.",
       {"basinctl dump > state.txt", "basinctl dump vision"},
       1,
       2,
       RunDump},
      {"recover",
       "JOB",
       "end a halted recovery with the workers that are back",
       "A restarted aggregator halts when too few workers have returned to establish how the\n"
       "last round ended. This command continues with those that are back: anything that only\n"
       "the missing workers held is lost, and the events report what.",
       {"basinctl status", "basinctl recover vision"},
       2,
       2,
       RunRecover},
      {"token",
       "new --jobs=JOBS [--role=ROLE] [--name=TEXT] [--grants=FILE]",
       "make a token, and its line for auth.file",
       "Prints the token on standard output, for the file of BASIN_TOKEN_FILE. --grants appends\n"
       "the line for it to the aggregator's auth.file, after a check of that file; without it,\n"
       "the line is printed on standard error. The line has only a hash of the token. --jobs: a\n"
       "job name, or a prefix followed by *. --role: worker (the default), observer, or admin.\n"
       "Needs no aggregator.",
       {"basinctl token new --jobs='team-a/*' --name='team a' --grants=grants > token",
        "basinctl token new --jobs='*' --role=admin"},
       2,
       2,
       nullptr,
       RunToken,
       Sharing::kHelp},
      {"dev-certs",
       "FOLDER [--host=HOST] [--lifetime=DURATION]",
       "make a CA and certificates for development",
       "Writes ca.crt, server.crt, server.key, client.crt and client.key into a new folder. "
       "--host: a\n"
       "name or address of the aggregator besides localhost; can be repeated. --lifetime: 720h "
       "by\n"
       "default. The key of the CA is not kept. Needs no aggregator.",
       {"basinctl dev-certs certs --host=trainer-1 --host=10.0.0.5"},
       2,
       2,
       nullptr,
       RunDevCerts,
       Sharing::kHelp},
      {"doctor",
       "[--workers-address=HOST:PORT] [--job=JOB]",
       "find out why an aggregator cannot be reached",
       "Checks name, TCP, MTU, TLS, token, round trip, clock and version, and says how to\n"
       "fix each failed check. It checks the address of operators (--address) and that of\n"
       "workers (--workers-address, also BASIN_ADDRESS): those that are given, or both. With\n"
       "--job (also BASIN_JOB) it checks whether the token is good for that job. The exit code\n"
       "is that of the first failure. It changes nothing.",
       {"basinctl doctor",
        "basinctl doctor --workers-address=basin-0.basin.training.svc:29600 --job=team-a/x"},
       1,
       1,
       nullptr,
       RunDoctor},
      {"bench",
       "[--workers-address=HOST:PORT] [--job=JOB] [--workers=N] [--model=SIZE] [--rounds=N] "
       "[--beside-others]",
       "measure round times from this machine",
       "Runs all-reduces of ones with a few workers (2) in this process and a model (64MiB).\n"
       "Shows the time of a round, also of one with 1 KiB, and the bandwidth. The job is\n"
       "new: its name is that of --job (basinctl-bench) with a random suffix, and a token\n"
       "must be valid for it. When its last worker has left, the aggregator forgets it at once.\n"
       "--workers-address: also BASIN_ADDRESS. Rounds take bandwidth from other jobs, so it\n"
       "refuses to run while the aggregator has other jobs, or if it may not list them;\n"
       "--beside-others runs it anyway.",
       {"basinctl bench", "basinctl bench --model=256MiB --workers=4 --rounds=20 -o json",
        "basinctl bench --job=team-a/bench --beside-others"},
       1,
       1,
       nullptr,
       RunBench},
      {"plan",
       "--workers=N --model=SIZE --nic=RATE [--round-trip=DURATION] [--memory=SIZE] "
       "[--shard-nic=RATE] [--shards=N] [--within=DURATION]",
       "estimate rounds, memory and shards of a job",
       "Computes the time of a round, the memory of the aggregator, and how an all-reduce in\n"
       "a ring compares. --model: the bytes of one gradient. --nic: the network of each\n"
       "machine, for example 2.5Gbit/s. --round-trip: between worker and aggregator (1ms).\n"
       "--memory: memory.budget of the aggregator. Below, the same with shards\n"
       "(docs/scale.md), up to the number after which the workers' own network is the limit.\n"
       "--shard-nic: the network of the aggregator's machine and of each shard's, if it is not\n"
       "that of --nic. --shards: this number, too. --within: how many shards a round of this\n"
       "time needs. Computes only; `basinctl bench` measures. Needs no aggregator.",
       {"basinctl plan --workers=8 --model=100MiB --nic=10Gbit/s",
        "basinctl plan --workers=32 --model=1GiB --nic=25Gbit/s --shard-nic=100Gbit/s --within=1s",
        "basinctl plan --workers=64 --model=1.5GiB --nic=100Gbit/s --memory=8GiB -o yaml"},
       1,
       1,
       nullptr,
       RunPlan,
       Sharing::kAnswer},
      {"completion",
       "bash | zsh | fish",
       "print a script that completes commands and flags",
       "Load the script when a shell starts. Needs no aggregator.",
       {"basinctl completion bash > /etc/bash_completion.d/basinctl",
        "basinctl completion zsh > ~/.zfunc/_basinctl",
        "basinctl completion fish > ~/.config/fish/completions/basinctl.fish"},
       2,
       2,
       nullptr,
       RunCompletion,
       Sharing::kHelp},
      {"version",
       "",
       "print the version",
       "Prints the versions of basinctl, of the protocol and of the arithmetic contract, like\n"
       "`basind version` of an aggregator. `basinctl doctor` compares the first two\n"
       "with those of a running one. Needs no aggregator.",
       {"basinctl version", "basinctl version -o json"},
       1,
       1,
       nullptr,
       RunVersion,
       Sharing::kAnswer},
  };
  return commands;
}

}  // namespace basin::aggregator
