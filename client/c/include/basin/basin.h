/* Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
 *
 * The C interface of the Basin client: a worker of a training job contributes its gradients to
 * rounds, and receives the results. The C++ and Python interfaces are built on this one.
 *
 *   basin_error* error = NULL;
 *   basin_options* options = basin_options_new(BASIN_READ_ENVIRONMENT);
 *   basin_worker* worker = NULL;
 *   basin_connect(options, &worker, &error);
 *   basin_register(worker, "model", BASIN_GRADIENT, tensors, count, &lane, handles, &error);
 *   basin_ready(worker, 0, 0, &error);
 *   basin_await_member(worker, BASIN_SECONDS(300), &error);
 *   each step:
 *     basin_begin(worker, lane, &spec, &error);
 *     basin_push(worker, lane, handles[i], gradient, bytes, &error);    as each one is ready
 *     basin_commit(worker, lane, NULL, NULL, &error);
 *     basin_wait(worker, lane, BASIN_SECONDS(60), &result, &error);
 *     basin_result_copy(result, handles[i], gradient, bytes, &error);
 *     basin_result_free(result);
 *
 * Errors. A function that can fail returns a code, which is BASIN_OK for success, and stores an
 * error through its last argument, which may be NULL. The caller frees the error with
 * basin_error_free. On success nothing is stored. Whatever a peer, a network, a configuration or
 * the environment does, the process does not end: the call that is affected returns an error.
 *
 * Buffers. A function reads and writes the caller's memory during the call only, except for:
 *   basin_push              The library may read the tensor until basin_wait, or the callback of
 *                           basin_commit or basin_withdraw, reports the outcome of the round.
 *                           BASIN_OUTCOME_UNKNOWN and BASIN_PAUSED are not outcomes: after them the
 *                           library may read the tensor until basin_wait reports the outcome, or
 *                           basin_abandon or basin_close returns.
 *   basin_push_narrow       The tensor is copied during the call.
 *   basin_push_device       The library may read the tensor until basin_commit or basin_withdraw
 *                           returns, or basin_wait reports the outcome of the round.
 *   basin_result_copy_device
 *                           The library may write to the tensor until the work that the stream is
 *                           given after the call. After an error it writes no more.
 *   basin_allgather, basin_alltoall, basin_reducescatter, basin_broadcast_rows
 *                           The library may read the rows until basin_wait_rows reports the outcome
 *                           of the call, or basin_abandon or basin_close returns; see basin_push.
 *   basin_announce          With BASIN_IN_PLACE the library may read the tensor until it is
 *                           announced again, or basin_stop_serving or basin_close returns; between
 *                           basin_step_begin and basin_step_end it does not read it.
 * Each pointer to a tensor comes with the number of bytes at that address. If this is not the size
 * of the tensor, the call fails with BASIN_INVALID_ARGUMENT and reads and writes nothing.
 *
 * Threads. Every function may be called from any thread at any time, except basin_close, which must
 * be the last call. One thread at a time waits for a lane's round. Each worker has its own thread,
 * `basin-client`; all workers of the process share the threads of gRPC (`default-executo`,
 * `resolver-execut`, `event_engine`, `timer_manager`, `grpc_global_tim`, `nexting_thread`). They
 * end with the last worker, for which basin_close waits two seconds at most, unless something else
 * in the process uses gRPC. A worker with the option `timeline` has another thread,
 * `basin-timeline`, and one with tensors on CUDA devices a `basin-device` for each device. A worker
 * that is closed in a callback has another thread, `basin-close`, until it is closed. No thread
 * handles signals, and no signal handler is installed. Callbacks run on one of these threads, one
 * at a time for each worker, and must not block: they would delay the network of all workers of the
 * process. Within a callback, a call that would have to wait fails with BASIN_FAILED_PRECONDITION.
 *
 * Fork. In a child every call on the parent's worker fails with BASIN_FAILED_PRECONDITION at once.
 * A child that needs its own worker must exec first: gRPC does not work in a fork.
 *
 * Enumerations that are passed in end with an enumerator for the largest int, so that every int is
 * a valid value of the type; a call with an undefined value is refused.
 *
 * Times are nanoseconds; a negative time never passes. Strings are UTF-8 and end with a zero.
 *
 * Stability. The declarations here keep their meaning and their layout within one
 * BASIN_ABI_VERSION. Structures that may grow begin with their size, set by their initialiser. New
 * functions and codes may be added. The dynamic linker does not start a program that was linked
 * with a newer library than the installed one ("version `BASIN_2.1' not found"): install that
 * release, or a newer one.
 */
#ifndef BASIN_BASIN_H_
#define BASIN_BASIN_H_

#include <stddef.h>
#include <stdint.h>

#define BASIN_ABI_VERSION 2

#if defined(__GNUC__)
#define BASIN_API __attribute__((visibility("default")))
#else
#define BASIN_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define BASIN_SECONDS(seconds) ((int64_t)((seconds)*1000000000LL))
#define BASIN_FOREVER ((int64_t)-1)

/* The versions of the loaded library, which may be newer than this header. */
BASIN_API uint32_t basin_abi_version(void);
BASIN_API const char* basin_version(void);

/* ---- errors */

typedef enum basin_code {
  BASIN_OK = 0,
  BASIN_INVALID_ARGUMENT = 1,
  BASIN_MISMATCH = 2,         /* Shape, dtype, op, scale or setting differs between workers. */
  BASIN_RUN_CONFLICT = 3,     /* Another run of the job is in progress. */
  BASIN_SUPERSEDED = 4,       /* A newer process has replaced this one. Exit. */
  BASIN_LINEAGE_CONFLICT = 5, /* This worker's history contradicts the job's. Exit. */
  BASIN_EVICTED = 6,          /* Lost for too long, or by command. Be ready again with state. */
  BASIN_STALE = 7,
  BASIN_CONTRIBUTION_CHANGED = 8, /* A tensor changed before its round had ended. */
  BASIN_DATA_CORRUPT = 9,
  BASIN_RESOURCE_EXHAUSTED = 10,
  BASIN_PAUSED = 11,          /* Too few workers, or suspended by an operator. Wait again. */
  BASIN_ROUND_ABORTED = 12,   /* No worker has a result. Gradients are kept; begin again. */
  BASIN_OUTCOME_UNKNOWN = 13, /* No verdict within the caller's time. Wait again, or abandon. */
  BASIN_DEADLINE_EXCEEDED = 14,
  BASIN_UNAVAILABLE = 15, /* The aggregator is unreachable, drains, or recovers. */
  BASIN_VERSION_MISMATCH = 16,
  BASIN_FAILED_PRECONDITION = 17, /* The call is not allowed in this state. */
  BASIN_NOT_FOUND = 18,
  BASIN_CODE_INT = 0x7fffffff
} basin_code;

/* The name without its prefix, "OUTCOME_UNKNOWN". */
BASIN_API const char* basin_code_name(basin_code code);
/* The exit code of a program that ends with this error, by which whatever restarts it can
 * distinguish errors (podFailurePolicy of Kubernetes): 75 if a restart helps, 78 if something else
 * must be corrected first, otherwise 1; 0 for BASIN_OK. */
BASIN_API int basin_exit_code(basin_code code);

typedef struct basin_error basin_error;
BASIN_API basin_code basin_error_code(const basin_error* error);
/* A text that names job, worker, lane and tensor, and ends with what to do next. */
BASIN_API const char* basin_error_message(const basin_error* error);
/* Whether this process cannot continue and must exit. */
BASIN_API int basin_error_is_fatal(const basin_error* error);
/* Whether a restart of this process may help. */
BASIN_API int basin_error_restart_helps(const basin_error* error);
/* Why a round was aborted, with BASIN_ROUND_ABORTED. */
typedef enum basin_abort_cause {
  BASIN_ABORT_OTHER = 0,          /* Or it is not known. */
  BASIN_ABORT_NO_CONTRIBUTOR = 1, /* All have withdrawn or were lost before they had committed. */
  BASIN_ABORT_LOSS = 2,           /* A worker was lost, and `round.loss_policy` is abort. */
  BASIN_ABORT_DEADLOCK = 3,       /* The workers wait for each other. */
  BASIN_ABORT_REDUCTION = 4,      /* A tensor cannot be reduced. Correct it before a retry. */
  BASIN_ABORT_STEP_AGAIN = 5      /* See basin_samples_lease_step(). Drop the gradients. */
} basin_abort_cause;
BASIN_API basin_abort_cause basin_error_abort_cause(const basin_error* error);
BASIN_API void basin_error_free(basin_error* error);

/* ---- options
 *
 * An option has the same name here (`min_workers`), in the environment (`BASIN_MIN_WORKERS`) and in
 * the documentation (docs/client.md lists them all). A value that is set here overrides the
 * environment. If neither names the worker, its id and max_workers come from the variables of the
 * launcher (RANK, OMPI_COMM_WORLD_RANK, SLURM_PROCID, ...). basin_connect refuses those of two
 * launchers that contradict each other. */

typedef struct basin_options basin_options;

enum { BASIN_READ_ENVIRONMENT = 1 }; /* For `flags`. Without it the environment is ignored. */
BASIN_API basin_options* basin_options_new(uint32_t flags);
BASIN_API void basin_options_free(basin_options* options);
/* The error BASIN_INVALID_ARGUMENT names the key, the value, and what is allowed. */
BASIN_API basin_code basin_options_set(basin_options* options, const char* key, const char* value,
                                       basin_error** error);
/* The value that basin_connect would use, as text, or NULL if there is none. It is valid until
 * `options` is changed or freed. */
BASIN_API const char* basin_options_get(const basin_options* options, const char* key);

/* Where this process is among the workers of its machine, by the variables of its launcher, as it
 * has numbered them at the start. */
typedef struct basin_machine {
  size_t size;
  uint32_t local_rank; /* From 0. Without a launcher, 0 of 1. */
  uint32_t local_size;
  uint32_t number;   /* That of the machine, from 0. */
  uint32_t machines; /* 0: this launcher does not number the machines. */
} basin_machine;
#define BASIN_MACHINE_INIT \
  { sizeof(basin_machine), 0, 0, 0, 0 }
/* BASIN_INVALID_ARGUMENT names a variable that is no number. */
BASIN_API basin_code basin_read_machine(basin_machine* machine, basin_error** error);

typedef enum basin_log_level {
  BASIN_LOG_DEBUG = 0,
  BASIN_LOG_INFO = 1,
  BASIN_LOG_WARNING = 2,
  BASIN_LOG_ERROR = 3
} basin_log_level;
/* Receives messages about changes of connections and rounds. Without a callback, warnings and
 * errors are written to stderr; with log = NULL, nothing is written. */
typedef void (*basin_log)(void* user, basin_log_level level, const char* message);
BASIN_API void basin_options_set_log(basin_options* options, basin_log log, void* user);

/* ---- worker */

typedef struct basin_worker basin_worker;

/* Starts to connect and returns at once; the worker reconnects by itself until it is closed. Fails
 * with BASIN_INVALID_ARGUMENT for options that no aggregator accepts. `options` may be freed. */
BASIN_API basin_code basin_connect(const basin_options* options, basin_worker** worker,
                                   basin_error** error);
/* Closes all connections and frees the worker; returns when no buffer is in use. A worker that has
 * not left counts as lost. Does nothing for NULL.
 *
 * In a callback of the worker it returns at once, and a thread of the library closes the worker
 * after the callback. The library may read the tensors of a round in flight until the callback of
 * the round has received BASIN_UNAVAILABLE, and those of a round without a callback until the
 * process ends. Nothing more is written to the log, and values that were announced in place are no
 * longer read. The end of the process does not wait for the worker to be closed. */
BASIN_API void basin_close(basin_worker* worker);

typedef enum basin_role { BASIN_JOINER = 0, BASIN_SPARE = 1, BASIN_MEMBER = 2 } basin_role;

typedef struct basin_place {
  size_t size;
  basin_role role;     /* BASIN_JOINER again after it has left, or cannot continue. */
  uint32_t rank;       /* This trainer's: 0 to world_size - 1. */
  uint32_t world_size; /* The number of trainers; 0 until they are known. */
  uint64_t generation_term;
  uint64_t generation_counter; /* The pair only increases; it changes with the members. */
  uint64_t joins;              /* How often this process became a member. */
  int has_donor;               /* Some members of this generation must load state: ... */
  int is_donor;                /* ... from this worker. */
  int draining;                /* The next generation will not include this worker. */
  int left;
  /* The generation in which the members that must load state have joined; 0 without a donor. It
   * changes when others join, so it can be the version under which the donor announces its state.
   */
  uint64_t donor_term;
  uint64_t donor_counter;
  /* A member that stands for several trainers (basin_set_ranks) has the ranks from first_rank on:
   * that of the trainer with local rank i is first_rank + i. */
  uint32_t first_rank;
  uint32_t ranks;   /* As of this generation; 0 for a worker that is not a member. */
  uint32_t members; /* The number of members. */
  /* For a worker that is not a member of a job that goes on without it: the rank of this trainer
   * and the number of trainers if the worker became a member now. They may change until it does.
   * expected_world_size is 0 while the job waits for workers, before the welcome, and if the
   * aggregator is too old to report it. */
  uint32_t expected_rank;
  uint32_t expected_world_size;
} basin_place;
#define BASIN_PLACE_INIT \
  { sizeof(basin_place), BASIN_JOINER, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Fails with a fatal error, such as BASIN_SUPERSEDED, once the process cannot continue. */
BASIN_API basin_code basin_get_place(basin_worker* worker, basin_place* place, basin_error** error);
/* The worker stands for `ranks` trainers, 1 to 1024, and this process has the number `local_rank`
 * among them, from 0. Until then the options `ranks` and `local_rank` apply. From the next begin
 * on each contribution holds what all of them have: it is reduced over them by the op of the
 * round, in a BASIN_WEIGHTED_AVERAGE after the multiplication by their weights, and its counts are
 * their sums. With one trainer it holds what that one has, not multiplied. That begin changes the
 * divisor; ranks and world size change with the next generation. The numbers of workers in the
 * options count such a worker once. Fails with BASIN_VERSION_MISMATCH if the aggregator is too
 * old. */
BASIN_API basin_code basin_set_ranks(basin_worker* worker, uint32_t ranks, uint32_t local_rank,
                                     basin_error** error);
/* Copy the id of the member that has this rank, of the donor, or of this worker, with its final
 * zero and truncated to `size`. Return the length of the id, or 0 if there is none. */
BASIN_API size_t basin_member_id(basin_worker* worker, uint32_t rank, char* id, size_t size);
BASIN_API size_t basin_donor_id(basin_worker* worker, char* id, size_t size);
BASIN_API size_t basin_worker_id(basin_worker* worker, char* id, size_t size);

/* Declares that the model is built and that state can be loaded; necessary again after an eviction.
 * The numbers are the step of the loaded state and a hash of its content, or 0 and 0 without one.
 * With registered states, a hash of 0 stands for theirs: workers that begin a job with different
 * ones load those of the worker with the highest step. */
BASIN_API basin_code basin_ready(basin_worker* worker, uint64_t step, uint64_t state_hash,
                                 basin_error** error);
/* Returns when the aggregator has welcomed the worker, which need not be ready: its place then says
 * whether the job goes on without it. */
BASIN_API basin_code basin_await_welcome(basin_worker* worker, int64_t timeout,
                                         basin_error** error);
/* Returns when the worker is a member. The error BASIN_DEADLINE_EXCEEDED names what it waits for;
 * BASIN_EVICTED means that it was a member, and must call basin_ready again. With registered states
 * it returns when the worker has those of the others, too. */
BASIN_API basin_code basin_await_member(basin_worker* worker, int64_t timeout, basin_error** error);

/* ---- tensors */

typedef enum basin_dtype {
  BASIN_SAME_DTYPE = 0, /* Where a dtype is optional. */
  BASIN_F64 = 1,
  BASIN_F32 = 2,
  BASIN_F16 = 3,
  BASIN_BF16 = 4,
  BASIN_I64 = 5,
  BASIN_I32 = 6,
  BASIN_U8 = 7,
  BASIN_DTYPE_INT = 0x7fffffff
} basin_dtype;

/* Contiguous, in C order. */
typedef struct basin_tensor {
  const char* name; /* Unique in its lane; matches the tensors of different workers. */
  basin_dtype dtype;
  uint32_t rank;
  const uint64_t* shape; /* `rank` sizes. */
} basin_tensor;

typedef enum basin_lane_kind {
  BASIN_GRADIENT = 0, /* Every member takes part in every round; one lane per optimizer. */
  BASIN_CALL = 1,     /* For occasional calls; its name begins with "call/". */
  BASIN_LANE_KIND_INT = 0x7fffffff
} basin_lane_kind;

/* Registers a lane and some of its tensors; `handles`, which may be NULL, receives a handle for
 * each tensor. Idempotent; may be called again with more tensors. The handles of a gradient lane
 * are valid until basin_close, and those of a call until its next round has ended, and then for as
 * long as the job has no more than half of limits.lane_names names (1024): with more, idle calls
 * are let go, and their handles are refused with BASIN_NOT_FOUND. A program with thousands of names
 * registers each of them again before it uses it, which costs nothing if it is still there. The
 * outcome of a call that was let go can still be waited for by its handle, until the next call with
 * this name begins; the newest 16384 outcomes that nobody has waited for are kept. */
BASIN_API basin_code basin_register(basin_worker* worker, const char* lane, basin_lane_kind kind,
                                    const basin_tensor* tensors, size_t count,
                                    uint32_t* lane_handle, uint32_t* handles, basin_error** error);

/* ---- rounds */

typedef enum basin_op {
  BASIN_SUM = 1,
  BASIN_AVERAGE = 2,
  BASIN_WEIGHTED_AVERAGE = 3,
  BASIN_MIN = 4,
  BASIN_MAX = 5,
  BASIN_PRODUCT = 6,
  BASIN_OP_INT = 0x7fffffff
} basin_op;

typedef enum basin_weight {
  BASIN_NO_WEIGHT = 0,
  BASIN_BY_SAMPLES = 1,
  BASIN_BY_TOKENS = 2,
  BASIN_BY_MICRO_BATCHES = 3,
  BASIN_WEIGHT_INT = 0x7fffffff
} basin_weight;

/* How the workers of a node were reduced to one contribution before it was pushed. */
typedef enum basin_local_reduction {
  BASIN_LOCAL_NONE = 0,          /* It is of one worker, or the worker did not say. */
  BASIN_LOCAL_DETERMINISTIC = 1, /* In byte order of the worker ids, as basin_group_reduce does. */
  BASIN_LOCAL_FAST = 2,          /* In an order that NCCL has chosen. */
  BASIN_LOCAL_INT = 0x7fffffff
} basin_local_reduction;

/* Positions [begin, end) of an epoch; see the part about samples. */
typedef struct basin_sample_range {
  uint64_t begin, end;
} basin_sample_range;

/* The settings on which all contributors of a round must agree, and the counts of this one. */
typedef struct basin_round_spec {
  size_t size;
  basin_op op; /* There is no default. */
  double prescale;
  double postscale;
  double predivide;      /* Divides before the sum and multiplies after it, to stay in range. */
  int auto_predivide;    /* The aggregator chooses predivide and reports it. */
  int contributes_sum;   /* The tensors are sums over this worker's samples, not means. */
  basin_weight weight;   /* For a BASIN_WEIGHTED_AVERAGE. */
  int divide_by_present; /* Divide each tensor by the number of workers that pushed it. */
  double loss_scale;     /* Compared, never applied. */
  int64_t samples;       /* In this contribution; negative: unknown; at most 2^48. With a */
  int64_t tokens;        /* weight of 0 the contribution is not read, and adds nothing. */
  int64_t micro_batches;
  uint64_t step;   /* The trainer's step number; only a label, unless compares_step. */
  uint64_t layout; /* A hash of the tensors that have gradients. Compared. */
  /* The trainers of other workers whose gradients are in this contribution as well, added up by
   * the same op, and multiplied by their weights in a BASIN_WEIGHTED_AVERAGE; the counts are the
   * sums over all of them. These workers begin the round and withdraw. At most 1023. */
  uint32_t carries;
  /* For the reduction plan in the results of all workers: how the contribution was reduced on this
   * node, and the ids of the other workers in it, in byte order; at most 1023. */
  basin_local_reduction local_reduction;
  uint32_t reduced_with_count;
  const char* const* reduced_with;
  /* Whether all workers make their steps together, and number them alike: one with another number
   * gets BASIN_MISMATCH, with both numbers. */
  int compares_step;
  /* The positions that the contribution was computed from, all micro-batches of it, and their
   * epoch; none: those of basin_samples_next. They must be leased to this worker; others are
   * BASIN_FAILED_PRECONDITION here, or make the aggregator reject the contribution. A round that is
   * committed commits those of all its contributors. At most 4096 ranges. A contribution without
   * any has no part in the epoch. */
  const basin_sample_range* sample_ranges;
  size_t sample_range_count;
  uint64_t sample_epoch;
  /* The numbers of the optimizer that applies the result, one in each line: "lr=0.1\nmomentum=0.9".
   * Compared with those of the workers that give some: one that differs gets BASIN_MISMATCH, with
   * the lines that differ and both workers. They may change from round to round, and are to be
   * written alike on all workers. NULL or empty: not compared. */
  const char* optimizer;
  /* What the round is for, in a call lane: "allgather of f32[*,3]". Workers that say different
   * things in one round get BASIN_MISMATCH, all of them, with what two of them say. At most 400
   * bytes. NULL or empty: a call without a name says its op, dtypes and shapes, others nothing. */
  const char* call;
  /* The trainers (1 for a worker of one) whose tensors for the round before are in this
   * contribution as well, because that round went on without this worker: basin_result_late has it,
   * and late_carries of the info is not 0. Otherwise BASIN_INVALID_ARGUMENT. The tensors are then
   * the sums of both rounds, or in a BASIN_WEIGHTED_AVERAGE of means their mean by weight; counts
   * and positions are those of both, and a BASIN_AVERAGE divides by both. */
  uint32_t deferred;
} basin_round_spec;
#define BASIN_ROUND_SPEC_INIT                                                                      \
  {                                                                                                \
    sizeof(basin_round_spec), (basin_op)0, 1, 1, 1, 0, 0, BASIN_NO_WEIGHT, 0, 1, -1, -1, -1, 0, 0, \
        0, BASIN_LOCAL_NONE, 0, 0, 0, 0, 0, 0, 0, 0, 0                                             \
  }

/* Memory for gradients that an aggregator on the same machine reads where they lie: a push of a
 * tensor in it copies nothing, as long as memory is shared with the aggregator; otherwise it is
 * ordinary memory. Like any memory that is pushed, it must not change until the round's outcome is
 * known. Use a few large pieces: each is an object of the system. The memory is zeroed and aligned
 * to a page; closing the worker frees it. Fails with BASIN_RESOURCE_EXHAUSTED without memory. */
BASIN_API basin_code basin_allocate(basin_worker* worker, size_t bytes, void** memory,
                                    basin_error** error);
/* Frees it. What is being pushed from it is still read. */
BASIN_API basin_code basin_free(basin_worker* worker, void* memory, basin_error** error);

typedef struct basin_result basin_result;

/* Called once: with a result, which the callback must free, or with an error, which it must not. */
typedef void (*basin_round_done)(void* user, uint32_t lane, basin_result* result,
                                 const basin_error* error);

/* Begins the next round of a lane. A lane has one round at a time; lanes are independent. A worker
 * that joined with a donor must load the state before its first round: the others do not change
 * theirs until it begins. BASIN_FAILED_PRECONDITION if states are registered and not loaded, or if
 * one of them could not be got: see basin_state_register. */
BASIN_API basin_code basin_begin(basin_worker* worker, uint32_t lane, const basin_round_spec* spec,
                                 basin_error** error);
/* If the state of the round does not allow a push or a skip, basin_commit returns the error. */
BASIN_API basin_code basin_push(basin_worker* worker, uint32_t lane, uint32_t tensor,
                                const void* data, size_t bytes, basin_error** error);
/* In place of an exponent for f16: the one that brings the largest value of the tensor just below
 * the largest of f16. It is 0 for a tensor without values other than 0, and for one with a value
 * that is not finite. For tensors on a device it is computed there, and nothing waits for it. */
#define BASIN_FIT_EXPONENT INT32_MIN
/* Sends an f32 tensor as f16 or bf16, multiplied by 2^exponent, which the aggregator undoes; the
 * sum is computed in f32. `bytes` is the size in f32. */
BASIN_API basin_code basin_push_narrow(basin_worker* worker, uint32_t lane, uint32_t tensor,
                                       const void* data, size_t bytes, basin_dtype as,
                                       int32_t exponent, basin_error** error);
/* A tensor of basin_push_many. `as` and `exponent` are those of basin_push_narrow; BASIN_SAME_DTYPE
 * and 0 send the tensor as it is. */
typedef struct basin_pushed {
  uint32_t tensor;
  const void* data;
  size_t bytes;
  basin_dtype as;
  int32_t exponent;
} basin_pushed;
/* Pushes many tensors. Small ones share frames, so that this costs much less than one call for
 * each. If it fails, none of them is pushed. */
BASIN_API basin_code basin_push_many(basin_worker* worker, uint32_t lane,
                                     const basin_pushed* tensors, size_t count,
                                     basin_error** error);
/* Pushes many tensors that are in the memory of a CUDA device: `device` is its index, and `stream`
 * the cudaStream_t in which they are written, or NULL for the default stream. Returns at once: the
 * tensors are copied after the work that the stream was given before this call, while it goes on
 * with other work, and the caller's thread waits for none of it until basin_commit, which waits for
 * the copies. The copies travel through pinned memory of at most the option `pinned_bytes`, and
 * through ordinary memory, more slowly, when that is not enough. A lane may have tensors on several
 * devices, and on the host; a tensor is of one device, and so is a call.
 *
 * If it fails, none of the tensors is pushed. BASIN_FAILED_PRECONDITION: the library was built
 * without CUDA, there is no driver or no such device, the stream is being captured into a graph, or
 * the device has failed. BASIN_INVALID_ARGUMENT: a tensor or the stream belongs to another device.
 * If a copy fails later, basin_commit returns why, with the tensor and the device: withdraw the
 * round. */
BASIN_API basin_code basin_push_device(basin_worker* worker, uint32_t lane,
                                       const basin_pushed* tensors, size_t count, int32_t device,
                                       void* stream, basin_error** error);
/* Skips a tensor. Tensors that are neither pushed nor skipped before the commit are skipped too. */
BASIN_API basin_code basin_skip(basin_worker* worker, uint32_t lane, uint32_t tensor,
                                basin_error** error);
/* Completes the contribution. It also succeeds if the library has withdrawn the contribution, as
 * the job has a different tensor of the same name: the outcome then has the reason. The outcome
 * goes to the callback, if there is one, and to a thread in basin_wait. If this call fails, the
 * callback is not called; after a round that had ended before, basin_wait takes the outcome. */
BASIN_API basin_code basin_commit(basin_worker* worker, uint32_t lane, basin_round_done done,
                                  void* user, basin_error** error);
/* Withdraws the contribution, so that it is not counted; the worker still gets the result. */
BASIN_API basin_code basin_withdraw(basin_worker* worker, uint32_t lane, const char* reason,
                                    basin_round_done done, void* user, basin_error** error);
/* The same for a contribution that another worker of the node carries. The aggregator sends no
 * results to this worker, which waits for none until basin_group_share. `reason`: NULL or empty,
 * unless the gradients are missing in the other worker's contribution. */
BASIN_API basin_code basin_withdraw_without_results(basin_worker* worker, uint32_t lane,
                                                    const char* reason, basin_round_done done,
                                                    void* user, basin_error** error);
/* Waits for the outcome of the round; a timeout of 0 does not wait. After BASIN_OUTCOME_UNKNOWN
 * (the time has passed) and BASIN_PAUSED (the job is paused) the round continues: wait again. */
BASIN_API basin_code basin_wait(basin_worker* worker, uint32_t lane, int64_t timeout,
                                basin_result** result, basin_error** error);
/* Abandons every round in flight, and with them the calls on rows and the membership: this worker
 * must call basin_ready again, with state. Returns when no buffer is in use. */
BASIN_API basin_code basin_abandon(basin_worker* worker, basin_error** error);

/* A tensor of basin_allreduce; `out` may be `in`. */
typedef struct basin_buffer {
  uint32_t tensor;
  const void* in;
  void* out;    /* Unchanged if no worker contributed to it. */
  size_t bytes; /* At `in`, and at `out`. */
} basin_buffer;
/* Begins, pushes, commits, waits and copies. `result` may be NULL. */
BASIN_API basin_code basin_allreduce(basin_worker* worker, uint32_t lane,
                                     const basin_round_spec* spec, const basin_buffer* buffers,
                                     size_t count, int64_t timeout, basin_result** result,
                                     basin_error** error);

/* Calls without a name. They are matched by their order in the program of each worker: the third
 * one of this worker is the third one of the others. They may have any arrays, and up to
 * BASIN_MOST_CALLS of a worker are in flight at once.
 *
 *   basin_next_call(worker, arrays, count, BASIN_FOREVER, &lane, parts, most, &n, &error);
 *   a basin_buffer for each part: {part.tensor, in + part.offset, out + part.offset, part.bytes},
 *   where `in` and `out` are those of array number part.array
 *   basin_allreduce(worker, lane, &spec, buffers, n, timeout, NULL, &error);
 *
 * or basin_begin, basin_push_many, basin_commit and basin_wait of this lane. If the workers differ
 * in the op, the dtypes or the shapes of a call, all of them get BASIN_MISMATCH, with what two of
 * them call, and the next calls are matched as before. A worker that joins begins with the call
 * that the others make next. Where a script of several workers may be at different calls, as when
 * one joins a job without gradient lanes, give the calls names. */

/* Elements of an array that are one tensor of the call's lane. */
typedef struct basin_part {
  size_t array;
  size_t offset; /* In bytes. */
  size_t bytes;
  uint32_t tensor;
} basin_part;
/* The most of these calls of one worker that are in flight. */
#define BASIN_MOST_CALLS 16
/* The most parts of an array. */
#define BASIN_MOST_PARTS 40
/* The lane of this worker's next call without a name, and the parts of its arrays, of which the
 * names are not used; there is room for `most` of them. It is the next one until its round has
 * begun, so let one thread at a time make these calls. Waits, before the first call and after the
 * worker has become a member again, until the aggregator has said where the others are.
 * BASIN_FAILED_PRECONDITION if the outcome of the one BASIN_MOST_CALLS before was not waited for.
 * BASIN_DEADLINE_EXCEEDED: the time has passed; call it again. */
BASIN_API basin_code basin_next_call(basin_worker* worker, const basin_tensor* arrays, size_t count,
                                     int64_t timeout, uint32_t* lane, basin_part* parts,
                                     size_t most, size_t* part_count, basin_error** error);

/* Returns when every member has called it with this name. After BASIN_OUTCOME_UNKNOWN and
 * BASIN_PAUSED the barrier stays open, and another call waits for the same one. */
BASIN_API basin_code basin_barrier(basin_worker* worker, const char* name, int64_t timeout,
                                   basin_error** error);

/* A descriptor that becomes readable when a round has ended or the worker's place has changed;
 * reading its eight bytes resets it. Then call basin_wait(..., 0, ...) and basin_get_place. The
 * library owns it; it is valid until basin_close. */
BASIN_API basin_code basin_event_fd(basin_worker* worker, int* fd, basin_error** error);

/* ---- results
 *
 * A result holds the received bytes. Free it before the results of the next round arrive, or both
 * stay in memory. A result is constant, so any thread may use it. */

typedef struct basin_round_info {
  size_t size;
  uint64_t round;
  basin_op op;
  double prescale, postscale, predivide; /* As used. */
  uint32_t contributors;                 /* Workers; see trainers. */
  uint64_t divisor;    /* The divisor of an average: a count or a sum of weights. */
  double squared_norm; /* The result's; negative if it has none: no tensor, or only integers. */
  int overflow;
  int has_nonfinite; /* A counted input was not finite. The first one: ... */
  uint32_t nonfinite_tensor;
  uint64_t nonfinite_element;
  int64_t samples, tokens,
      micro_batches;  /* Over all contributors; negative: one did not report it. */
  uint64_t chain;     /* Equal on all workers that have the same history. */
  int auto_predivide; /* The aggregator chose predivide. */
  int contributes_sum;
  basin_weight weight;
  int divide_by_present; /* Then basin_result_divisor has the divisor of each tensor. */
  double loss_scale;
  uint64_t weights; /* The sum of the contributors' weights; their number without weights. */
  uint64_t generation_term; /* The generation of the members when it was reduced. */
  uint64_t generation_counter;
  uint32_t contract_version; /* The version of the arithmetic. */
  uint32_t world_size;       /* Trainers of that generation, contributors or not. */
  uint64_t layout;           /* The hash that the workers agreed on. */
  uint32_t trainers;         /* In the contributions: the ranks of the contributors, added up. */
  /* If contributions name positions of an epoch: how many the round committed, how many of the
   * epoch are committed after it, and whether the epoch has ended with it. The same on all
   * workers. */
  int has_sample_epoch;
  uint64_t sample_epoch;
  uint64_t samples_committed;
  uint64_t epoch_committed;
  int epoch_ended;
  /* Whether the next contribution of each worker of basin_result_late may have this one as well;
   * see deferred of basin_round_spec. */
  int late_carries;
} basin_round_info;
#define BASIN_ROUND_INFO_INIT                                                                    \
  {                                                                                              \
    sizeof(basin_round_info), 0, (basin_op)0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, -1, -1, -1, 0, 0, 0, \
        BASIN_NO_WEIGHT, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0                             \
  }

BASIN_API void basin_result_info(const basin_result* result, basin_round_info* info);
/* The ids of the contributors, in byte order; valid as long as the result. NULL beyond the last. */
BASIN_API const char* basin_result_contributor(const basin_result* result, uint32_t index);
/* The trainers in the contribution; 0 beyond the last contributor. */
BASIN_API uint32_t basin_result_contributor_ranks(const basin_result* result, uint32_t index);
/* The trainers whose tensors for the round before are in the contribution as well, because that
 * round went on without them; 0 for most, and beyond the last contributor. */
BASIN_API uint32_t basin_result_contributor_deferred(const basin_result* result, uint32_t index);
/* The reduction plan: how the contribution was reduced on its node, and the ids of the other
 * workers in it, in byte order; NULL beyond the last. The contributions are added in the order of
 * their contributors. The same plan gives the same bits, unless a part of it is BASIN_LOCAL_FAST.
 */
BASIN_API basin_local_reduction basin_result_contributor_local_reduction(const basin_result* result,
                                                                         uint32_t index);
BASIN_API const char* basin_result_contributor_reduced_with(const basin_result* result,
                                                            uint32_t index, uint32_t other);
/* The contributor's weight, which is 1 unless the round was weighted, and the squared norm of its
 * tensors: infinite if they contain a number that is not finite, negative if it is unknown or, for
 * integers, does not exist. 0 and -1 beyond the last contributor. A contribution with weight 0 adds
 * nothing and is not read, so an infinite norm is the only sign of a number that is not finite. */
BASIN_API uint64_t basin_result_contributor_weight(const basin_result* result, uint32_t index);
BASIN_API double basin_result_contributor_squared_norm(const basin_result* result, uint32_t index);
/* The worker and the tensor of the first counted input that was not finite; NULL if all were
 * finite. Workers with weight 0 are not counted. The tensor may be one that was not registered
 * here. Valid as long as the result. */
BASIN_API const char* basin_result_nonfinite_worker(const basin_result* result);
BASIN_API const char* basin_result_nonfinite_tensor(const basin_result* result);
/* The ids of the workers whose contributions were left out because they were late, in byte order;
 * valid as long as the result. NULL beyond the last. Only an aggregator with round.late_policy
 * `leave_out` or `carry` leaves any out. They get this result too, and go on with the next round;
 * what they had contributed to this one is lost, unless they add it to that (see deferred of
 * basin_round_spec), and the samples that they had named stay theirs. */
BASIN_API const char* basin_result_late(const basin_result* result, uint32_t index);
/* Why this worker's contribution was not counted as it was sent (for example BASIN_MISMATCH), or
 * NULL if it was. Valid as long as the result. */
BASIN_API const basin_error* basin_result_rejection(const basin_result* result);
/* Whether the tensor has a result: a worker with a weight above 0 contributed to it. */
BASIN_API int basin_result_has(const basin_result* result, uint32_t tensor);
/* The divisor of the tensor's average, 0 without a result; and the squared norm of its result,
 * negative without a result and for integers. The norms of all tensors sum to that of the round. */
BASIN_API uint64_t basin_result_divisor(const basin_result* result, uint32_t tensor);
BASIN_API double basin_result_squared_norm(const basin_result* result, uint32_t tensor);
/* The same for the first `count` tensors, in the order of their handles from 0 on. Either array may
 * be NULL. Returns the number of tensors of the lane. */
BASIN_API size_t basin_result_tensors(const basin_result* result, size_t count, uint64_t* divisors,
                                      double* squared_norms);
/* Copies the tensor, in C order and its own dtype. Fails with BASIN_NOT_FOUND without a result. */
BASIN_API basin_code basin_result_copy(const basin_result* result, uint32_t tensor, void* to,
                                       size_t bytes, basin_error** error);
/* Copies many tensors, each to `out`; `in` is not used. Stops at the first that fails. */
BASIN_API basin_code basin_result_copy_many(const basin_result* result, const basin_buffer* buffers,
                                            size_t count, basin_error** error);
/* The same for tensors in the memory of a CUDA device; see basin_push_device. `worker` is the one
 * that got the result. The tensors are written after the work that the stream was given before this
 * call, and before what it is given later. The call itself waits for the device only while 24 MiB
 * of results are on their way to it; then also for the earlier work of the stream. If the device
 * reports an error of such a copy when the call has returned, the next call with the device fails
 * with it. */
BASIN_API basin_code basin_result_copy_device(basin_worker* worker, const basin_result* result,
                                              const basin_buffer* buffers, size_t count,
                                              int32_t device, void* stream, basin_error** error);
/* Gives access to the received tensor without a copy, as consecutive pieces. They are valid as long
 * as the result. Returns 0 beyond the last piece. */
BASIN_API int basin_result_piece(const basin_result* result, uint32_t tensor, size_t index,
                                 const void** data, size_t* bytes);
BASIN_API void basin_result_free(basin_result* result);

/* ---- calls on rows
 *
 * Workers bring each other the rows of arrays. The rows are the elements of the first dimension; a
 * number is one row. All members make a call, by the same name, also those in C++ and Python; a
 * name is for one kind of call. Its begin returns at once, with a handle to wait for:
 *
 *   const uint64_t shape[] = {count, 64};
 *   const basin_tensor rows = {"features", BASIN_F32, 2, shape};
 *   basin_allgather(worker, &rows, features, count * 64 * sizeof(float), &call, &error);
 *   basin_wait_rows(worker, call, BASIN_SECONDS(60), &received, &error);
 *   for each i below basin_received_parts(received):
 *     basin_received_rows(received, i) rows of rank i, at basin_received_data(received, i, NULL)
 *   basin_received_free(received);
 *
 * An allgather and an all-to-all take two rounds, one for the numbers of rows and one for the rows,
 * which a worker begins in basin_wait_rows: the others wait until it is there. Every worker
 * receives the rows of all, also in an all-to-all, of which basin_received has those for this one.
 * A call among some workers of a job is one of another job, which they connect to as well.
 *
 * A begin fails with BASIN_INVALID_ARGUMENT before anything is sent, and with
 * BASIN_FAILED_PRECONDITION if the outcome of the last call of this kind and name was not waited
 * for, and `call` then receives the handle of that; otherwise as basin_begin. */

/* The rows of all workers, by rank. Each may have another number of them, also none. `rows` names
 * the call, and has the shape of the array at `data`. */
BASIN_API basin_code basin_allgather(basin_worker* worker, const basin_tensor* rows,
                                     const void* data, size_t bytes, uint32_t* call,
                                     basin_error** error);
/* Sends the first splits[0] rows to rank 0, the next splits[1] to rank 1, and so on, and receives
 * the rows for this worker, by the rank that has sent them. `count`: the number of splits. They are
 * one for each rank, and add up to the rows. Like a reduce-scatter, it is no call for workers that
 * stand for several ranks (BASIN_FAILED_PRECONDITION). */
BASIN_API basin_code basin_alltoall(basin_worker* worker, const basin_tensor* rows,
                                    const void* data, size_t bytes, const uint64_t* splits,
                                    size_t count, uint32_t* call, basin_error** error);
/* Reduces the array as a round with this specification would, whose `call` is not used, and
 * receives the rows of this worker in one part: as many as the others get, or one more for the
 * first ranks. All workers have the same shape. */
BASIN_API basin_code basin_reducescatter(basin_worker* worker, const basin_tensor* rows,
                                         const basin_round_spec* spec, const void* data,
                                         size_t bytes, uint32_t* call, basin_error** error);
/* Receives the array of the worker with rank `root` in one part. All workers have the same shape;
 * `data` is read on the root alone, and may be NULL elsewhere. The root may leave when its call has
 * ended. */
BASIN_API basin_code basin_broadcast_rows(basin_worker* worker, const basin_tensor* rows,
                                          uint32_t root, const void* data, size_t bytes,
                                          uint32_t* call, basin_error** error);

typedef struct basin_received basin_received;

/* Waits for the outcome of a call, and returns it once; a timeout of 0 does not wait. After
 * BASIN_OUTCOME_UNKNOWN and BASIN_PAUSED the call goes on: wait again.
 *
 * BASIN_MISMATCH, on all workers: they differ in the call, the dtype, the shape of a row, the op or
 * the root; the text says how two of them do. BASIN_UNAVAILABLE, on all workers: the one that the
 * text names was lost before it had sent its rows, or members have changed where ranks matter; call
 * it again. BASIN_NOT_FOUND: no such call is in flight. What fails on this worker alone, between
 * the two rounds, is its error, and costs the others BASIN_UNAVAILABLE. */
BASIN_API basin_code basin_wait_rows(basin_worker* worker, uint32_t call, int64_t timeout,
                                     basin_received** received, basin_error** error);
/* What the call has brought is constant, so any thread may use it, and valid until it is freed: the
 * number of parts, one for each worker or one alone; the number of rows of a part, 0 beyond the
 * last; where they are, NULL beyond the last, and how many `bytes`, which may be NULL. Each part
 * begins where the one before it ends. */
BASIN_API size_t basin_received_parts(const basin_received* received);
BASIN_API uint64_t basin_received_rows(const basin_received* received, size_t part);
BASIN_API const void* basin_received_data(const basin_received* received, size_t part,
                                          size_t* bytes);
/* The facts of the call's last round, such as basin_result_info and its contributors, without
 * tensors. Valid as long as `received`; do not free it. */
BASIN_API const basin_result* basin_received_result(const basin_received* received);
BASIN_API void basin_received_free(basin_received* received);

/* ---- the group of a node
 *
 * The ranks of one node can reduce their gradients on their devices among themselves, with NCCL,
 * before one of them contributes the sums for all. Every rank stays a worker with its own calls:
 *
 *   basin_group_open(worker, device, "gradients", layout, &group, &error);   NULL: not grouped
 *   each step:
 *     basin_group_turn(group, BASIN_SECONDS(1), &turn, &error);    until turn.members > 0
 *     basin_group_reduce(group, BASIN_SUM, bucket, count, &error); for each bucket, in one order
 *     basin_group_end(group, BASIN_SECONDS(1), &phase, &error);    until it is not BASIN_PHASE_OPEN
 *     if BASIN_PHASE_ALONE: each contributes its gradients for itself, and shares nothing
 *     the leader:
 *       basin_begin with carries = members - 1, the sums of all counts, and local_reduction and
 *       reduced_with of the group
 *       basin_push_device of the sums, basin_commit
 *     the others:
 *       basin_begin, basin_withdraw_without_results
 *     all:
 *       basin_group_share, basin_wait
 *
 * Whatever fails before basin_group_end reports BASIN_PHASE_ENDED costs no gradient but those of a
 * rank that is lost: the phase is BASIN_PHASE_ALONE on all ranks, and the group forms again for the
 * next step. A leader that is lost after that, and before it has committed, costs the round the
 * contributions of its node. If no contributor is left, the round ends with BASIN_ROUND_ABORTED and
 * BASIN_ABORT_NO_CONTRIBUTOR, and each rank that is left contributes to the next one for itself.
 *
 * One thread at a time uses a group, which is independent of the threads that use the worker. An
 * error other than those that a function names is the end of the group, on this rank. */

typedef struct basin_group basin_group;

/* Finds the other ranks, by the options `local_group` and `nccl_library` of the worker and the
 * variables LOCAL_RANK and LOCAL_WORLD_SIZE of the launcher, and returns at once. Ranks with the
 * same job, run and `name` form a group; `layout` says, in the words of an error, what else must be
 * the same on all of them: the tensors, their buckets. `device` is the index of the CUDA device
 * that the tensors are on.
 *
 * `*group` is NULL, with BASIN_OK, if `local_group` is off or the node has one rank, and if it is
 * auto and there is no NCCL or no device; then a warning in the log says why. In the other modes
 * these are BASIN_NOT_FOUND and BASIN_FAILED_PRECONDITION, which a build without CUDA gives as
 * well. In each mode the other ranks of the node are told why, and basin_group_turn returns that as
 * BASIN_FAILED_PRECONDITION there: in mode auto the worker tells it until it is closed; in the
 * other modes this call returns when all of them know it, or after a minute. */
BASIN_API basin_code basin_group_open(basin_worker* worker, int32_t device, const char* name,
                                      const char* layout, basin_group** group, basin_error** error);
/* Leaves the group, which goes on without this rank. Before basin_finished and basin_leave, the
 * others then need not find out. Does nothing for NULL. */
BASIN_API void basin_group_close(basin_group* group);

typedef struct basin_turn {
  size_t size;
  uint32_t members; /* Ranks that take part; 0: there is no turn yet. */
  int leads;        /* This rank gets the results. */
} basin_turn;
#define BASIN_TURN_INIT \
  { sizeof(basin_turn), 0, 0 }

/* Begins to reduce. A turn of one member that does not lead is that of a phase which has failed
 * already: basin_group_end reports BASIN_PHASE_ALONE. BASIN_INVALID_ARGUMENT: the ranks do not
 * agree, and the text names the value. BASIN_DEADLINE_EXCEEDED: a rank has not come.
 * BASIN_FAILED_PRECONDITION: this process has started after the group had formed, and is not in it;
 * it contributes for itself. */
BASIN_API basin_code basin_group_turn(basin_group* group, int64_t timeout, basin_turn* turn,
                                      basin_error** error);
/* The id of the worker that leads the turn, as basin_donor_id. */
BASIN_API size_t basin_group_leader(const basin_group* group, char* id, size_t size);

/* For basin_round_spec of the leader: how the turn reduces, and the ids of its other members by
 * index, in byte order, as basin_donor_id; 0 beyond the last. */
BASIN_API basin_local_reduction basin_group_reduction(const basin_group* group);
BASIN_API size_t basin_group_reduced_with(const basin_group* group, uint32_t index, char* id,
                                          size_t size);

/* A tensor of a bucket. Everything but the memory and the stream is the same on all ranks. */
typedef struct basin_grouped {
  basin_dtype dtype;  /* That of `in`. */
  basin_dtype result; /* That of `out`: the same, or for BASIN_F32 a smaller one. */
  uint64_t count;     /* Elements. */
  const void* in;     /* On the device of the group. */
  void* out;    /* Written at the leader only, and overlaps no `in`; elsewhere it is unused. */
  void* stream; /* The cudaStream_t in which `in` is written. */
} basin_grouped;
/* Reduces a bucket to the leader, by BASIN_SUM, BASIN_MIN, BASIN_MAX or BASIN_PRODUCT. Returns at
 * once: it runs after the present work of the streams and after earlier buckets, on all ranks in
 * the same order. Floats are added in f32 (f64: in f64) and rounded once. The library uses the
 * memory until basin_group_end reports BASIN_PHASE_ENDED or BASIN_PHASE_ALONE, or
 * basin_group_close returns. A tensor that this rank lacks is reduced as zeros that it provides. A
 * tensor without elements only orders the bucket after its stream.
 *
 * BASIN_INVALID_ARGUMENT (memory of another device) and BASIN_FAILED_PRECONDITION (a stream that is
 * being captured) leave the bucket out: call basin_group_fail, or the others wait for it. */
BASIN_API basin_code basin_group_reduce(basin_group* group, basin_op op,
                                        const basin_grouped* tensors, size_t count,
                                        basin_error** error);
typedef enum basin_phase {
  BASIN_PHASE_OPEN = 0,  /* The time has passed first. */
  BASIN_PHASE_ENDED = 1, /* All ranks have contributed, and the leader has the results. */
  BASIN_PHASE_ALONE = 2  /* Something has failed: there are no results, on any rank. */
} basin_phase;
/* Waits for the buckets of the turn. */
BASIN_API basin_code basin_group_end(basin_group* group, int64_t timeout, basin_phase* phase,
                                     basin_error** error);
/* This rank cannot go on with the turn, because it has no memory for zeros or for the results, or
 * its backward has failed. It reduces no more in this turn, and basin_group_end reports
 * BASIN_PHASE_ALONE on all ranks, unless the leader had everything before. */
BASIN_API basin_code basin_group_fail(basin_group* group, const char* reason, basin_error** error);

/* Where the results of a tensor of the lane pass through the device of the group: memory that
 * nothing else uses, as large as the tensor. The same tensors in the same order on all ranks. */
typedef struct basin_shared {
  uint32_t tensor;
  void* memory;
  size_t bytes;
} basin_shared;
/* Brings the results of the round to the ranks that did not lead: the leader broadcasts them when
 * it has received them, and the others stage them as if they had come over the network. Each rank
 * calls it once after each phase, the leader after basin_commit, the others after
 * basin_withdraw_without_results. Waits for the results, but not for the outcome; `stream` is the
 * cudaStream_t that used the memory last. BASIN_DEADLINE_EXCEEDED: the time has passed first; call
 * again. Whatever else fails, the results come from the aggregator, and the error says why. A
 * worker that never ends this call gets no results. */
BASIN_API basin_code basin_group_share(basin_group* group, basin_worker* worker, uint32_t lane,
                                       const basin_shared* tensors, size_t count, void* stream,
                                       int64_t timeout, basin_error** error);

/* ---- samples
 *
 * Every sample of an epoch exactly once, whichever workers come and go. The samples are positions 0
 * to samples - 1 of an order that each worker computes for itself. A worker leases positions, and
 * begins rounds with them; the round's verdict commits those of all contributors. After a round
 * that was aborted, or that did not count it, a worker still holds its positions, and trains on
 * them again. Those of a worker that is lost are leased to others.
 *
 *   before each round:
 *     basin_samples_next(worker, lane, &epoch, 64, positions, &written, &outcome, &error);
 *     spec.samples = written;   and a BASIN_WEIGHTED_AVERAGE with BASIN_BY_SAMPLES
 *
 * BASIN_SAMPLES_LEASED: compute a gradient of the samples at these positions, and begin. The round
 * names them. It does not count them: `samples` of its spec does, so that a worker with fewer
 * samples weighs less.
 *
 * BASIN_SAMPLES_NONE_NOW: other workers hold what is left, and may be lost. Take part in a round
 * without a contribution (begin, withdraw, wait), and ask again.
 *
 * BASIN_SAMPLES_ENDED: go on with the next epoch. */

typedef struct basin_sample_epoch {
  uint64_t number;  /* A later epoch has a higher one. */
  uint64_t samples; /* 1 to 2^48. */
  uint64_t order;   /* A hash of what determines the order: seed, kind, length. */
} basin_sample_epoch;

typedef enum basin_samples_outcome {
  BASIN_SAMPLES_LEASED = 0,
  BASIN_SAMPLES_NONE_NOW = 1, /* Others hold what is left, or an earlier epoch has not ended. */
  BASIN_SAMPLES_ENDED = 2     /* All is committed, or the lane is at a later epoch. */
} basin_samples_outcome;

/* The batch of the next round: at most `count` positions, for which `positions` has room. They are
 * those that this worker holds and has not trained on, because their round was aborted or did not
 * count it; otherwise it leases them, as basin_samples_lease, with the same outcomes and errors.
 * The rounds that are begun in this lane with no `sample_ranges` name the batch, until the next
 * call. When the round that names it is committed, so is the batch: call this before each begin, or
 * it fails with BASIN_FAILED_PRECONDITION. All workers that take part in all rounds get
 * BASIN_SAMPLES_ENDED before the same round.
 *
 * BASIN_FAILED_PRECONDITION while the outcome of a round of the lane has not been taken. To load
 * further ahead, use basin_samples_lease, and in the whole lane not this function. */
BASIN_API basin_code basin_samples_next(basin_worker* worker, uint32_t lane,
                                        const basin_sample_epoch* epoch, uint64_t count,
                                        uint64_t* positions, size_t* written, int* outcome,
                                        basin_error** error);
/* The index of the sample at this position of a shuffled epoch, for which `order` is the seed:
 * another permutation of 0 to samples - 1 for each number and each seed, equal on all workers.
 * UINT64_MAX for no epoch, and for a position beyond it. An order of the trainer's own needs no
 * function of the library, but must be equal on all workers, and `order` a hash of it.
 *
 * The arithmetic is that of this version and of all later ones, modulo 2^64. A position has two
 * halves of b bits each, the fewest, but at least 1, with samples <= 4^b. Eight times, for r = 1 to
 * 8, (left, right) becomes (right, left ^ mix(key + r * 0x9e3779b97f4a7c15 + right) mod 2^b). The
 * whole is repeated until the result is below `samples`. Here mix is the finaliser of SplitMix64
 * (shifts 30, 27, 31), and key = mix(order + mix(number)). */
BASIN_API uint64_t basin_samples_shuffled(const basin_sample_epoch* epoch, uint64_t position);
/* An eviction voids all leases of a worker. A restart of the aggregator may void some, if the
 * earlier one had lost the worker without its knowledge, and had leased them to others: basin_begin
 * then fails, and names the first position that the worker does not hold any more. Drop the batch.
 *
 * Leases up to `count` positions of the epoch, the lowest that are free: `written` ranges,
 * ascending. Near the end of the epoch each worker gets its share of what is left. What does not
 * fit `capacity` is returned. Waits for the aggregator's answer, also while it restarts. A later
 * epoch than before gives up the positions that this worker holds of the earlier one; it begins
 * when that has ended, or when all workers that lease samples in this lane ask for a later one.
 *
 * BASIN_MISMATCH: another worker has given the epoch other samples, order or checkpoint.
 * BASIN_FAILED_PRECONDITION: the worker is no member, or another thread leases in this lane.
 * BASIN_EVICTED: it was a member; all its leases are void. BASIN_VERSION_MISMATCH: the aggregator,
 * or another worker, is too old. BASIN_RESOURCE_EXHAUSTED: the worker holds too many already. */
BASIN_API basin_code basin_samples_lease(basin_worker* worker, uint32_t lane,
                                         const basin_sample_epoch* epoch, uint64_t count,
                                         basin_sample_range* ranges, size_t capacity,
                                         size_t* written, int* outcome, basin_error** error);
/* In place of basin_samples_lease(), on all workers: each round is over exactly `global_batch`
 * samples, whatever the number of workers; the last one of an epoch has what is left. Leases this
 * worker's share of the next step of which it has none, as equal as possible, by its rank in the
 * present generation. So steps can be leased ahead, and each round is begun with the share of the
 * lowest step. Shares are those of one generation: when it changes (basin_place), return all, and
 * lease again.
 *
 * A round whose contributions are not of exactly the samples of the step, because a worker was lost
 * or has joined meanwhile, is aborted on all workers, with BASIN_ABORT_STEP_AGAIN: drop the
 * gradients, return all, and lease again. The step comes again.
 *
 * BASIN_SAMPLES_NONE_NOW: the step has fewer samples than workers, or others train on all of it.
 * BASIN_RESOURCE_EXHAUSTED: the share has more ranges than `capacity`. The rest is as above. */
BASIN_API basin_code basin_samples_lease_step(basin_worker* worker, uint32_t lane,
                                              const basin_sample_epoch* epoch,
                                              uint64_t global_batch, basin_sample_range* ranges,
                                              size_t capacity, size_t* written, int* outcome,
                                              basin_error** error);
/* Returns positions that this worker will not use. They ascend, and no two ranges touch; at most
 * 4096. Those that it does not hold are ignored. BASIN_FAILED_PRECONDITION for positions that the
 * round in flight was begun with. */
BASIN_API basin_code basin_samples_return(basin_worker* worker, uint32_t lane, uint64_t epoch,
                                          const basin_sample_range* ranges, size_t count,
                                          basin_error** error);
/* What is committed as of the last verdict that this worker has, for a checkpoint; before the first
 * verdict of an epoch that was resumed, what the checkpoint had. `written` receives the number of
 * ranges, which may be more than `capacity`: then only the first are copied. An epoch of 0 samples:
 * nothing was ever committed. */
BASIN_API basin_code basin_samples_committed(basin_worker* worker, uint32_t lane,
                                             basin_sample_epoch* epoch, basin_sample_range* ranges,
                                             size_t capacity, size_t* written, basin_error** error);
/* Resumes from a checkpoint, before the first lease of its epoch, on any number of workers: each of
 * them gives the same. At most 16384 ranges, which ascend, and of which no two touch. A worker that
 * joins a job that is further already may give it as well; the job goes on where it is. */
BASIN_API basin_code basin_samples_resume(basin_worker* worker, uint32_t lane,
                                          const basin_sample_epoch* epoch,
                                          const basin_sample_range* committed, size_t count,
                                          basin_error** error);

/* ---- target batches
 *
 * A round whose batch has a given number of samples, however many workers share it, and however
 * fast each of them is: each accumulates the gradients of micro-batches, reports after each how
 * many samples it has, and begins the round when all workers together have the target. Its counts
 * say how many samples the batch really has. */

/* Reports the `samples` whose gradients this worker has accumulated for the next round of the lane,
 * and learns those of all workers (`total`), and whether the round is `closed`: then every worker
 * begins it with what it has, which may be nothing. A round that a worker has begun is closed.
 * Waits for the aggregator's answer, also while it restarts. Both numbers are at most 2^48.
 *
 * BASIN_MISMATCH: another worker has given this round another target. The other errors are those of
 * basin_samples_lease. BASIN_FAILED_PRECONDITION also while a round is in flight. */
BASIN_API basin_code basin_report_batch(basin_worker* worker, uint32_t lane, uint64_t samples,
                                        uint64_t target, uint64_t* total, int* closed,
                                        basin_error** error);

/* ---- values: tensors of one worker that other workers can get */

typedef enum basin_hold {
  BASIN_COPY = 0,
  BASIN_IN_PLACE = 1,
  BASIN_HOLD_INT = 0x7fffffff
} basin_hold;

/* Lets this worker serve this version of the tensor. A newer version replaces it. */
BASIN_API basin_code basin_announce(basin_worker* worker, const char* lane,
                                    const basin_tensor* tensor, uint64_t version, const void* data,
                                    size_t bytes, basin_hold hold, basin_error** error);
BASIN_API basin_code basin_stop_serving(basin_worker* worker, const char* lane, const char* tensor,
                                        basin_error** error);
/* Enclose code that writes to memory that was announced in place, such as optimizer.step(). */
BASIN_API void basin_step_begin(basin_worker* worker);
BASIN_API void basin_step_end(basin_worker* worker);
/* Waits until `source`, or any worker if it is NULL, has announced the value, and copies it. Fails
 * with BASIN_MISMATCH if the value has a different dtype or shape, with BASIN_UNAVAILABLE if its
 * sender was lost and no other worker has announced it, and with BASIN_EVICTED if this worker is no
 * longer a member. */
BASIN_API basin_code basin_get(basin_worker* worker, const char* lane, const basin_tensor* tensor,
                               uint64_t version, const char* source, int64_t timeout, void* to,
                               size_t bytes, basin_error** error);
/* The worker with rank `root` announces `data`; the others receive the value in `data`. `bytes` is
 * the size of the tensor on all workers. */
BASIN_API basin_code basin_broadcast(basin_worker* worker, const char* lane,
                                     const basin_tensor* tensor, uint64_t version, uint32_t root,
                                     void* data, size_t bytes, int64_t timeout,
                                     basin_error** error);

/* ---- states: what a worker that joins late must have
 *
 * Parameters, moments of the optimizer, counters, the epoch: whatever the next step depends on.
 * Each worker registers them before basin_ready, under the same names. Then
 *
 *   basin_begin and basin_wait    serve them, in the gradient lane, to workers that have joined;
 *   basin_await_member            also loads those of the others, if this worker has joined late.
 *
 * So when a worker begins a round, its states are those after the round before it: apply a result
 * completely before the next begin, and nothing before basin_wait has returned it. A trainer that
 * takes outcomes in callbacks serves at the begin only. A worker with states has one gradient lane:
 * with another, basin_begin fails with BASIN_FAILED_PRECONDITION. Rounds of call lanes do not
 * serve.
 *
 * A joiner gets all states of one worker at one boundary, or none: if that worker dies meanwhile,
 * it takes those of another. basin_await_member fails with BASIN_MISMATCH if the others have other
 * names or models, which the error names, before anything is set. */

/* Stores where the present content is, which is copied at once, and returns NULL; or returns a text
 * that says what has failed. The call in which it is made then fails with
 * BASIN_FAILED_PRECONDITION, the name of the state and this text. Nothing is lost: no round has
 * begun, or the one in flight goes on, and the same call can be made again. */
typedef const char* (*basin_state_get)(void* user, const void** data, size_t* bytes);
/* Takes over the content of another worker, which may not be aligned, and returns NULL; or returns
 * a text that says what has failed. Then all states are set back to what `get` has returned before,
 * and basin_await_member fails as above. It may be made again. */
typedef const char* (*basin_state_set)(void* user, const void* data, size_t bytes);

/* `model`: a text that all workers have in common, such as the sizes of the layers. Name and model
 * are 1 to 256 bytes. The functions run on the threads of the calls that serve and load, one at a
 * time, and must not call the library for this worker; they and `user` are valid until basin_close
 * returns. BASIN_FAILED_PRECONDITION: the name is registered, or the worker is a member already. */
BASIN_API basin_code basin_state_register(basin_worker* worker, const char* name, const char* model,
                                          basin_state_get get, basin_state_set set, void* user,
                                          basin_error** error);
/* The same for memory, whose size is the model. It is read and written in the calls that serve and
 * load. */
BASIN_API basin_code basin_state_register_memory(basin_worker* worker, const char* name,
                                                 void* memory, size_t bytes, basin_error** error);

/* ---- reports */

/* Reports that the trainer does something else, and for how long; 0: it is over. Workers that wait
 * for this one get the reason. */
BASIN_API basin_code basin_busy(basin_worker* worker, const char* reason, int64_t expected,
                                basin_error** error);
/* Declares that this worker is out of data: it contributes to no further round, and the others do
 * not wait for it. */
BASIN_API basin_code basin_finished(basin_worker* worker, basin_error** error);
/* Declares that the trainer leaves at the end of its step, for example because it got a signal. The
 * step continues, except in a paused job, where the missing workers may never come: there, each
 * wait for a round or a value ends with BASIN_PAUSED, about five seconds after the pause began
 * (round.late_warning). Then leave: the round goes on without this worker. It also does not wait to
 * become a member. A signal handler must not call this; set a flag, and wait for rounds in slices.
 */
BASIN_API basin_code basin_will_leave(basin_worker* worker, basin_error** error);
/* Leaves the job; rounds in flight fail. Returns when the aggregator has confirmed it, or does not
 * answer. */
BASIN_API basin_code basin_leave(basin_worker* worker, basin_error** error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* BASIN_BASIN_H_ */
