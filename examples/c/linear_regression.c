/* Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
 *
 * Trains a linear regression with any number of workers, which may die, leave and join meanwhile.
 *
 *   basind &
 *   BASIN_ADDRESS=127.0.0.1:29600 BASIN_MAX_WORKERS=2 BASIN_WORKER_ID=a ./linear_regression &
 *   BASIN_ADDRESS=127.0.0.1:29600 BASIN_MAX_WORKERS=2 BASIN_WORKER_ID=b ./linear_regression
 *
 * usage: linear_regression [STEPS]
 *
 * In each step every worker computes the gradient over samples that it leases, and all apply the
 * average, weighted by the number of samples. All workers therefore hold the same parameters, bit
 * for bit, and end with the same last line, whichever workers took part meanwhile; and each sample
 * is used once in an epoch. A worker that joins late loads the state of the others.
 * A worker that gets SIGTERM leaves after the step that it is in, or during the step if the job is
 * paused, with exit code 143. After an error it ends with the error's exit code, by which a Job of
 * Kubernetes decides whether to restart it.
 */

#include <basin/basin.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum { kInputs = 8, kParameters = kInputs + 1, kBatch = 32 };

static const uint64_t kSamples = 1024; /* In the data set. */
static const uint64_t kSeed = 1;       /* Of the order of the samples. */
static const double kLearningRate = 0.1;
static const int64_t kPatience = BASIN_SECONDS(300);
static const int64_t kSlice =
    BASIN_SECONDS(1); /* The part of a wait between checks of `leaving`. */

static volatile sig_atomic_t leaving = 0;

static void Leave(int signal_number) {
  (void)signal_number;
  leaving = 1;
}

/* The state that a joiner has to load. */
typedef struct State {
  double parameter[kParameters]; /* The weights, then the bias. */
  uint64_t step;                 /* The number of applied steps. */
  uint64_t epoch;
} State;

typedef struct Trainer {
  basin_worker* worker;
  uint32_t lane;
  uint32_t gradient; /* The lane's tensor, ... */
  State state;
  /* ... and its numbers, which the library reads from the push until the outcome of the round is
   * reported. */
  double value[kParameters];
  double loss;
} Trainer;

/* ---- the model */

/* The true parameters, which generate the samples. */
static double TrueParameter(int k) { return k < kInputs ? k - 3.5 : 2; }

/* A number in [-1, 1) that depends only on the arguments (SplitMix64's finaliser). */
static double Noise(uint64_t sample, uint64_t input) {
  uint64_t z = sample * UINT64_C(0x9e3779b97f4a7c15) + input * UINT64_C(0xd1b54a32d192ed03);
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  z ^= z >> 31;
  return (double)(z >> 11) * 0x1p-52 - 1;
}

static double Input(uint64_t sample, int k) {
  return k < kInputs ? Noise(sample, (uint64_t)k) : 1; /* The bias has no input. */
}

/* The mean gradient of the squared error over these samples of the epoch. */
static void Compute(const State* state, const basin_sample_epoch* epoch, const uint64_t* positions,
                    size_t count, double* gradient, double* loss) {
  *loss = 0;
  for (int k = 0; k < kParameters; ++k) gradient[k] = 0;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t sample = basin_samples_shuffled(epoch, positions[i]);
    double error = 0;
    for (int k = 0; k < kParameters; ++k) {
      error += (state->parameter[k] - TrueParameter(k)) * Input(sample, k);
    }
    for (int k = 0; k < kParameters; ++k) gradient[k] += 2 * error * Input(sample, k);
    *loss += error * error;
  }
  for (int k = 0; k < kParameters; ++k) gradient[k] /= (double)count;
  *loss /= (double)count;
}

static void Apply(State* state, const double* gradient) {
  for (int k = 0; k < kParameters; ++k) state->parameter[k] -= kLearningRate * gradient[k];
  ++state->step;
}

/* ---- training */

/* Becomes a member that has the state. */
static basin_code Join(Trainer* trainer, basin_error** error) {
  const basin_code code = basin_ready(trainer->worker, trainer->state.step, 0, error);
  return code == BASIN_OK ? basin_await_member(trainer->worker, kPatience, error) : code;
}

/* Begins a round with the gradient of the next batch. */
static basin_code Contribute(Trainer* trainer, basin_error** error) {
  const basin_sample_epoch epoch = {trainer->state.epoch, kSamples, kSeed};
  uint64_t positions[kBatch];
  size_t count = 0;
  int outcome = 0;
  basin_code code = basin_samples_next(trainer->worker, trainer->lane, &epoch, kBatch, positions,
                                       &count, &outcome, error);
  if (code != BASIN_OK) return code;

  basin_round_spec spec = BASIN_ROUND_SPEC_INIT;
  spec.op = BASIN_WEIGHTED_AVERAGE;
  spec.weight = BASIN_BY_SAMPLES;
  spec.samples = (int64_t)count;
  spec.step = trainer->state.step;
  code = basin_begin(trainer->worker, trainer->lane, &spec, error);
  if (code != BASIN_OK) return code;
  if (count == 0) {
    code = basin_withdraw(trainer->worker, trainer->lane,
                          "other workers have the rest of the epoch", NULL, NULL, error);
  } else {
    Compute(&trainer->state, &epoch, positions, count, trainer->value, &trainer->loss);
    code = basin_push(trainer->worker, trainer->lane, trainer->gradient, trainer->value,
                      sizeof trainer->value, error);
    if (code == BASIN_OK) code = basin_commit(trainer->worker, trainer->lane, NULL, NULL, error);
  }
  if (code != BASIN_EVICTED && code != BASIN_ROUND_ABORTED) return code;
  /* The round has ended meanwhile: the wait says so again, and takes its outcome. */
  basin_error_free(*error);
  *error = NULL;
  return BASIN_OK;
}

/* Waits for the outcome of the round. */
static basin_code Wait(Trainer* trainer, basin_result** result, basin_error** error) {
  for (;;) {
    basin_error* not_yet = NULL;
    basin_code code = basin_wait(trainer->worker, trainer->lane, kSlice, result, &not_yet);
    if (code != BASIN_OUTCOME_UNKNOWN && (code != BASIN_PAUSED || leaving)) {
      *error = not_yet;
      return code;
    }
    basin_error_free(not_yet);
    code = leaving ? basin_will_leave(trainer->worker, error) : BASIN_OK;
    if (code != BASIN_OK) return code;
  }
}

/* Runs one round: sends the gradient and applies the average. */
static basin_code Step(Trainer* trainer, basin_error** error) {
  basin_result* result = NULL;
  basin_code code = Contribute(trainer, error);
  if (code == BASIN_OK) code = Wait(trainer, &result, error);
  if (code != BASIN_OK) return code;
  basin_round_info info = BASIN_ROUND_INFO_INIT;
  basin_result_info(result, &info);
  code = basin_result_copy(result, trainer->gradient, trainer->value, sizeof trainer->value, error);
  basin_result_free(result);
  if (code != BASIN_OK) return code;
  Apply(&trainer->state, trainer->value);
  if (info.epoch_ended) ++trainer->state.epoch; /* On all workers at the same step. */
  return BASIN_OK;
}

static basin_code Train(Trainer* trainer, uint64_t steps, basin_error** error) {
  int joins = 1;
  while (!leaving && (joins || trainer->state.step < steps)) {
    const basin_code code = joins ? Join(trainer, error) : Step(trainer, error);
    joins = code == BASIN_EVICTED; /* The others continued without this worker. */
    if (code == BASIN_OK) continue;
    const int leaves = leaving && code == BASIN_PAUSED;
    if (code != BASIN_ROUND_ABORTED && code != BASIN_EVICTED && !leaves) return code;
    basin_error_free(*error); /* No worker has applied an aborted round, so it can be run again. */
    *error = NULL;
  }
  return BASIN_OK;
}

/* Connects, trains, and prints the result. */
static basin_code Run(Trainer* trainer, uint64_t steps, basin_error** error) {
  basin_options* options = basin_options_new(BASIN_READ_ENVIRONMENT);
  basin_code code = basin_connect(options, &trainer->worker, error);
  basin_options_free(options);
  if (code != BASIN_OK) return code;

  const uint64_t shape[] = {kParameters};
  const basin_tensor gradient = {"gradient", BASIN_F64, 1, shape};
  code = basin_register(trainer->worker, "model", BASIN_GRADIENT, &gradient, 1, &trainer->lane,
                        &trainer->gradient, error);
  if (code == BASIN_OK) {
    code = basin_state_register_memory(trainer->worker, "state", &trainer->state,
                                       sizeof trainer->state, error);
  }
  if (code == BASIN_OK) code = Train(trainer, steps, error);
  if (code != BASIN_OK) return code;
  printf("step %" PRIu64 ", loss %.3g, parameters", trainer->state.step, trainer->loss);
  for (int k = 0; k < kParameters; ++k) printf(" %a", trainer->state.parameter[k]);
  printf("\n");
  code = basin_finished(trainer->worker, error); /* The others continue without this worker. */
  return code == BASIN_OK ? basin_leave(trainer->worker, error) : code;
}

int main(int argc, char** argv) {
  Trainer trainer = {0};
  basin_error* error = NULL;
  signal(SIGTERM, Leave);
  int status = 0;
  if (Run(&trainer, argc > 1 ? strtoull(argv[1], NULL, 10) : 200, &error) != BASIN_OK) {
    fprintf(stderr, "%s: %s\n", basin_code_name(basin_error_code(error)),
            basin_error_message(error));
    status = basin_exit_code(basin_error_code(error));
    basin_error_free(error);
  }
  basin_close(trainer.worker);
  return status == 0 && leaving ? 128 + SIGTERM : status;
}
