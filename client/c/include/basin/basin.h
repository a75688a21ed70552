/* Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
 *
 * The C interface of the Basin client: a worker of a training job contributes its gradients to
 * rounds, and receives what they come to. Every other interface (C++, Python) is made of this one.
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
 * Errors. A function that can fail returns a code, BASIN_OK for success, and takes as its last
 * argument where to put the error; NULL when nobody wants it. What it puts there is freed with
 * basin_error_free. On success it is not touched. Nothing a peer, a network, a configuration or the
 * environment does ends the process: it is an error of the call that meets it.
 *
 * Buffers. What a function is given is read or written during the call only, except for:
 *   basin_push              The tensor is the library's, to read, until the outcome of the round is
 *                           told: by basin_wait, or by the callback given to basin_commit or
 *                           basin_withdraw. BASIN_OUTCOME_UNKNOWN and BASIN_PAUSED are no outcomes.
 *                           After them it stays the library's until basin_wait tells the outcome,
 *                           or basin_abandon or basin_close returns.
 *   basin_push_narrow       Copied during the call.
 *   basin_announce          With BASIN_IN_PLACE: the library's, to read, until the same tensor is
 *                           announced again, or basin_stop_serving or basin_close returns; between
 *                           basin_step_begin and basin_step_end it is not read.
 * Each pointer to a tensor comes with the number of bytes that lie there. Another number than the
 * tensor has is BASIN_INVALID_ARGUMENT, and nothing is read or written.
 *
 * Threads. Every function may be called from any thread at any time, but basin_close, which comes
 * last. One thread at a time waits for a lane's round. Each worker has a thread of its own, named
 * `basin-client`; gRPC's are shared by all workers of the process (`default-executo`,
 * `resolver-execut`, `event_engine`, `timer_manager`, `grpc_global_tim`, `nexting_thread`) and stay
 * after the last one is closed. A worker that a callback closes has one more, `basin-close`, until
 * it is closed. None of them handles signals, and no signal handler is installed.
 * Callbacks run on `basin-client` and must not block; from there a call that would have to wait is
 * refused with BASIN_FAILED_PRECONDITION.
 *
 * Fork. In a child every call on the parent's worker fails with BASIN_FAILED_PRECONDITION at once.
 * A child that wants a worker of its own must exec first: gRPC does not work in a fork.
 *
 * Enumerations that are passed in end with a name of the largest int: whatever number a caller has
 * is a value of theirs, and is refused where it means nothing.
 *
 * Times are nanoseconds; a negative one never passes. Strings are UTF-8 and end with a zero.
 *
 * Stability. What is declared here keeps its meaning and its layout within one BASIN_ABI_VERSION.
 * Structures that may grow begin with their size, set by their initialiser. New functions and new
 * codes may be added; a program that was linked with a library that has them is refused by the
 * dynamic linker with one that does not ("version `BASIN_2.1' not found"): install that release, or
 * a newer one.
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

/* Of the library that runs, which may be newer than this header. */
BASIN_API uint32_t basin_abi_version(void);
BASIN_API const char* basin_version(void);

/* ---- errors */

typedef enum basin_code {
  BASIN_OK = 0,
  BASIN_INVALID_ARGUMENT = 1,
  BASIN_MISMATCH = 2,         /* Shape, dtype, op, scale or setting differs from the others'. */
  BASIN_RUN_CONFLICT = 3,     /* Another run of the job is in progress. */
  BASIN_SUPERSEDED = 4,       /* A newer process has taken this worker id. Exit. */
  BASIN_LINEAGE_CONFLICT = 5, /* This worker's history is not the job's. Exit. */
  BASIN_EVICTED = 6,          /* Lost for too long, or by command. Ready again, with state. */
  BASIN_STALE = 7,
  BASIN_CONTRIBUTION_CHANGED = 8, /* A tensor was written to before its round had ended. */
  BASIN_DATA_CORRUPT = 9,
  BASIN_RESOURCE_EXHAUSTED = 10,
  BASIN_PAUSED = 11,          /* Too few workers, or suspended by an operator. Wait again. */
  BASIN_ROUND_ABORTED = 12,   /* Nobody applies it. Gradients are kept; begin again. */
  BASIN_OUTCOME_UNKNOWN = 13, /* No verdict within the caller's time. Wait again, or abandon. */
  BASIN_DEADLINE_EXCEEDED = 14,
  BASIN_UNAVAILABLE = 15, /* The aggregator cannot be reached, or drains, or recovers. */
  BASIN_VERSION_MISMATCH = 16,
  BASIN_FAILED_PRECONDITION = 17, /* The call is not allowed in this state. */
  BASIN_NOT_FOUND = 18,
  BASIN_CODE_INT = 0x7fffffff
} basin_code;

/* The name without its prefix, "OUTCOME_UNKNOWN". */
BASIN_API const char* basin_code_name(basin_code code);

typedef struct basin_error basin_error;
BASIN_API basin_code basin_error_code(const basin_error* error);
/* A sentence that names job, worker, lane and tensor, and ends with what to do next. */
BASIN_API const char* basin_error_message(const basin_error* error);
/* Whether this process can do nothing about it, and must exit. */
BASIN_API int basin_error_is_fatal(const basin_error* error);
/* Whether a restart of this process may help. */
BASIN_API int basin_error_restart_helps(const basin_error* error);
BASIN_API void basin_error_free(basin_error* error);

/* ---- options
 *
 * An option has the same name here (`min_workers`), in the environment (`BASIN_MIN_WORKERS`) and in
 * the documentation (docs/client.md lists them all). What is set here counts before the
 * environment; the worker's identity is taken from the launcher's variables (RANK,
 * JOB_COMPLETION_INDEX, ...) when nothing names it. */

typedef struct basin_options basin_options;

enum { BASIN_READ_ENVIRONMENT = 1 }; /* For `flags`. Without it the environment is not looked at. */
BASIN_API basin_options* basin_options_new(uint32_t flags);
BASIN_API void basin_options_free(basin_options* options);
/* BASIN_INVALID_ARGUMENT names the key, the value, and what would be right. */
BASIN_API basin_code basin_options_set(basin_options* options, const char* key, const char* value,
                                       basin_error** error);
/* The value that basin_connect would use, as text; valid until `options` is changed or freed. NULL
 * when there is none. */
BASIN_API const char* basin_options_get(const basin_options* options, const char* key);

typedef enum basin_log_level {
  BASIN_LOG_DEBUG = 0,
  BASIN_LOG_INFO = 1,
  BASIN_LOG_WARNING = 2,
  BASIN_LOG_ERROR = 3
} basin_log_level;
/* What the library has to say about connections and rounds, changes only. Without a callback,
 * warnings and errors go to stderr; with log = NULL, nothing goes anywhere. */
typedef void (*basin_log)(void* user, basin_log_level level, const char* message);
BASIN_API void basin_options_set_log(basin_options* options, basin_log log, void* user);

/* ---- worker */

typedef struct basin_worker basin_worker;

/* Begins to connect, and goes on for as long as the worker lives; it does not wait for it.
 * BASIN_INVALID_ARGUMENT for options that no aggregator would accept. `options` may be freed. */
BASIN_API basin_code basin_connect(const basin_options* options, basin_worker** worker,
                                   basin_error** error);
/* Closes all connections and frees the worker; returns when no buffer is in use. A worker that has
 * not left is counted as lost. Nothing happens for NULL.
 *
 * In a callback of the worker it returns at once, and the worker is closed after the callback, on a
 * thread of the library's. The tensors of each round in flight are the library's until the
 * callback of that round has been told BASIN_UNAVAILABLE; those of a round without a callback, as
 * long as the process. Nothing goes to the log any more, and what was announced in place is the
 * caller's again. The end of the process does not wait for it. */
BASIN_API void basin_close(basin_worker* worker);

typedef enum basin_role { BASIN_JOINER = 0, BASIN_SPARE = 1, BASIN_MEMBER = 2 } basin_role;

typedef struct basin_place {
  size_t size;
  basin_role role;     /* BASIN_JOINER again when it has left, or cannot go on. */
  uint32_t rank;       /* Of a member; its position among the members. */
  uint32_t world_size; /* Members. 0 before the first ones are known. */
  uint64_t generation_term;
  uint64_t generation_counter; /* The pair never goes back; a new one means other members. */
  uint64_t joins;              /* How often this process became a member. */
  int has_donor;               /* Somebody joined last who must load state: ... */
  int is_donor;                /* ... from this worker. */
  int draining;                /* This worker will not be among the next members. */
  int left;
  /* Generation that those who must load state have joined with; 0 without a donor. Another one
   * means that others have joined, whose state is that of now: a version to announce it as. */
  uint64_t donor_term;
  uint64_t donor_counter;
} basin_place;
#define BASIN_PLACE_INIT \
  { sizeof(basin_place), BASIN_JOINER, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* BASIN_SUPERSEDED and others that are fatal, once the process cannot go on with the job. */
BASIN_API basin_code basin_get_place(basin_worker* worker, basin_place* place, basin_error** error);
/* The id of the member of this rank, of the donor, of this worker: copied with its zero, cut to
 * `size`. Returns its length, 0 when there is none. */
BASIN_API size_t basin_member_id(basin_worker* worker, uint32_t rank, char* id, size_t size);
BASIN_API size_t basin_donor_id(basin_worker* worker, char* id, size_t size);
BASIN_API size_t basin_worker_id(basin_worker* worker, char* id, size_t size);

/* The model is built and state can be loaded; to be said again after an eviction. The numbers tell
 * what was loaded: the step, and a hash of the content; 0 and 0 when nothing was. */
BASIN_API basin_code basin_ready(basin_worker* worker, uint64_t step, uint64_t state_hash,
                                 basin_error** error);
/* Returns when the worker is a member. BASIN_DEADLINE_EXCEEDED says what it waits for;
 * BASIN_EVICTED says that it was one, and has to be ready again. */
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
  const char* name; /* Unique in its lane; what tensors of different workers are matched by. */
  basin_dtype dtype;
  uint32_t rank;
  const uint64_t* shape; /* `rank` sizes. */
} basin_tensor;

typedef enum basin_lane_kind {
  BASIN_GRADIENT = 0, /* Every member takes part in every round; one lane per optimizer. */
  BASIN_CALL = 1,     /* For calls now and then; its name begins with "call/". */
  BASIN_LANE_KIND_INT = 0x7fffffff
} basin_lane_kind;

/* Names a lane and tensors of it; `handles`, which may be NULL, receives one per tensor.
 * Idempotent; may be called again with more tensors. Handles stay valid as long as the worker. */
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

/* What all contributors of a round must agree on, and what this one contributes. */
typedef struct basin_round_spec {
  size_t size;
  basin_op op; /* There is no default. */
  double prescale;
  double postscale;
  double predivide;      /* Divides before the sum, multiplies after it: range, not value. */
  int auto_predivide;    /* The aggregator chooses predivide, and reports it. */
  int contributes_sum;   /* A sum over this worker's samples instead of their mean. */
  basin_weight weight;   /* Of a BASIN_WEIGHTED_AVERAGE. */
  int divide_by_present; /* Each tensor by those who pushed it, not by all contributors. */
  double loss_scale;     /* Compared, never applied. */
  int64_t samples;       /* Of this contribution; negative: unknown, at most 2^48. With a weight */
  int64_t tokens;        /* of 0 the contribution is not read, and adds nothing. */
  int64_t micro_batches;
  uint64_t step;   /* The trainer's own number; a label. */
  uint64_t layout; /* A hash of the tensors that the trainer has gradients of. Compared. */
} basin_round_spec;
#define BASIN_ROUND_SPEC_INIT \
  { sizeof(basin_round_spec), (basin_op)0, 1, 1, 1, 0, 0, BASIN_NO_WEIGHT, 0, 1, -1, -1, -1, 0, 0 }

typedef struct basin_result basin_result;

/* Told once: with a result, which is then the callback's to free, or with an error, which is not.
 */
typedef void (*basin_round_done)(void* user, uint32_t lane, basin_result* result,
                                 const basin_error* error);

/* One round of a lane at a time; lanes are independent. A worker that joined with a donor loads the
 * state before its first one: the others keep the state of that moment until it begins. */
BASIN_API basin_code basin_begin(basin_worker* worker, uint32_t lane, const basin_round_spec* spec,
                                 basin_error** error);
/* What is wrong with a push or a skip in the state of the round is told by basin_commit. */
BASIN_API basin_code basin_push(basin_worker* worker, uint32_t lane, uint32_t tensor,
                                const void* data, size_t bytes, basin_error** error);
/* An f32 tensor travels as f16 or bf16, times 2^exponent, undone on arrival; summed in f32. `bytes`
 * are those of f32. */
BASIN_API basin_code basin_push_narrow(basin_worker* worker, uint32_t lane, uint32_t tensor,
                                       const void* data, size_t bytes, basin_dtype as,
                                       int32_t exponent, basin_error** error);
/* Tensors that are neither pushed nor skipped are skipped. */
BASIN_API basin_code basin_skip(basin_worker* worker, uint32_t lane, uint32_t tensor,
                                basin_error** error);
/* The contribution is complete. One that was withdrawn meanwhile, because the job has another
 * tensor of that name, is committed like any other: its outcome says why it was refused. With a
 * callback the outcome is told to it, and to a thread that waits for it, if there is one; it is
 * told nothing when this fails. */
BASIN_API basin_code basin_commit(basin_worker* worker, uint32_t lane, basin_round_done done,
                                  void* user, basin_error** error);
/* The contribution is not to be counted; the worker still gets the result. */
BASIN_API basin_code basin_withdraw(basin_worker* worker, uint32_t lane, const char* reason,
                                    basin_round_done done, void* user, basin_error** error);
/* Waits for the outcome of the round; 0 asks without waiting. BASIN_OUTCOME_UNKNOWN when the time
 * passes and BASIN_PAUSED when the job is: the round goes on, wait again. */
BASIN_API basin_code basin_wait(basin_worker* worker, uint32_t lane, int64_t timeout,
                                basin_result** result, basin_error** error);
/* Gives up every round in flight, and the membership with them: this worker must be ready again,
 * with state. Returns when no buffer is in use. */
BASIN_API basin_code basin_abandon(basin_worker* worker, basin_error** error);

/* A tensor of basin_allreduce; `out` may be `in`. */
typedef struct basin_buffer {
  uint32_t tensor;
  const void* in;
  void* out;    /* Unchanged when nobody contributed to it. */
  size_t bytes; /* At `in`, and at `out`. */
} basin_buffer;
/* Begin, push, commit, wait and copy. `result` may be NULL. */
BASIN_API basin_code basin_allreduce(basin_worker* worker, uint32_t lane,
                                     const basin_round_spec* spec, const basin_buffer* buffers,
                                     size_t count, int64_t timeout, basin_result** result,
                                     basin_error** error);
/* Returns when every member has called it with this name. After OUTCOME_UNKNOWN or PAUSED it goes
 * on: call it again, and it is the same barrier. */
BASIN_API basin_code basin_barrier(basin_worker* worker, const char* name, int64_t timeout,
                                   basin_error** error);

/* A descriptor that becomes readable when a round has ended or the worker's place has changed;
 * reading its eight bytes resets it. Then ask with basin_wait(..., 0, ...) and basin_get_place. It
 * is the library's, valid until basin_close. */
BASIN_API basin_code basin_event_fd(basin_worker* worker, int* fd, basin_error** error);

/* ---- results
 *
 * A result holds the bytes as they were received; free it before the next round's results arrive,
 * or both are held. Constant, so safe from any thread. */

typedef struct basin_round_info {
  size_t size;
  uint64_t round;
  basin_op op;
  double prescale, postscale, predivide; /* As used. */
  uint32_t contributors;
  uint64_t divisor;    /* Count or sum of weights; what an average was divided by. */
  double squared_norm; /* Of the result; negative when it has none: no tensor, or integers only. */
  int overflow;
  int has_nonfinite; /* Some input that was counted was not finite; the first one: ... */
  uint32_t nonfinite_tensor;
  uint64_t nonfinite_element;
  int64_t samples, tokens,
      micro_batches;  /* Over all contributors; negative: somebody did not say. */
  uint64_t chain;     /* Equal on all workers that have the same history. */
  int auto_predivide; /* The aggregator chose predivide. */
  int contributes_sum;
  basin_weight weight;
  int divide_by_present; /* Then basin_result_divisor has the divisor of each tensor. */
  double loss_scale;
  uint64_t weights; /* The sum of the contributors' weights; their number without weights. */
  uint64_t generation_term; /* Of the members when it was reduced. */
  uint64_t generation_counter;
  uint32_t contract_version; /* Of the arithmetic. */
  uint32_t world_size;       /* Members of that generation, contributors or not. */
  uint64_t layout;           /* What the workers agreed on. */
} basin_round_info;
#define BASIN_ROUND_INFO_INIT                                                                    \
  {                                                                                              \
    sizeof(basin_round_info), 0, (basin_op)0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, -1, -1, -1, 0, 0, 0, \
        BASIN_NO_WEIGHT, 0, 1, 0, 0, 0, 0, 0, 0                                                  \
  }

BASIN_API void basin_result_info(const basin_result* result, basin_round_info* info);
/* Ids in byte order; valid as long as the result. NULL beyond the last. */
BASIN_API const char* basin_result_contributor(const basin_result* result, uint32_t index);
/* Its weight, 1 unless the round was weighted, and the squared norm of what it sent: infinite when
 * a number in that was not finite, negative when it is not known or there is none, of integers. 0
 * and -1 beyond the last. With weight 0 the contribution added nothing and was not read: an
 * infinite norm is then the only sign of a number that is not finite. */
BASIN_API uint64_t basin_result_contributor_weight(const basin_result* result, uint32_t index);
BASIN_API double basin_result_contributor_squared_norm(const basin_result* result, uint32_t index);
/* Of the first input that was not finite, among those that were counted, so of no worker with
 * weight 0: who sent it, and in which tensor, which may be one that was not registered here. NULL
 * when all were finite. Valid as long as the result. */
BASIN_API const char* basin_result_nonfinite_worker(const basin_result* result);
BASIN_API const char* basin_result_nonfinite_tensor(const basin_result* result);
/* Why this worker's contribution was not counted as it was sent (BASIN_MISMATCH, say); NULL: it
 * was. Valid as long as the result. */
BASIN_API const basin_error* basin_result_rejection(const basin_result* result);
/* Whether the tensor has a result: somebody contributed to it, and not all with weight 0. */
BASIN_API int basin_result_has(const basin_result* result, uint32_t tensor);
/* What the tensor's average was divided by, 0 without a result; and the squared norm of its result,
 * of which the round's is the sum, negative where there is none: without a result, and of integers.
 */
BASIN_API uint64_t basin_result_divisor(const basin_result* result, uint32_t tensor);
BASIN_API double basin_result_squared_norm(const basin_result* result, uint32_t tensor);
/* The same of all tensors at once, in order of their handles from 0 on: copies those of the first
 * `count`, to where it is not NULL. Returns how many tensors the lane has. */
BASIN_API size_t basin_result_tensors(const basin_result* result, size_t count, uint64_t* divisors,
                                      double* squared_norms);
/* Copies the tensor, `bytes` in C order and the tensor's dtype. BASIN_NOT_FOUND without a result.
 */
BASIN_API basin_code basin_result_copy(const basin_result* result, uint32_t tensor, void* to,
                                       size_t bytes, basin_error** error);
/* Instead of a copy: the tensor where it was received, in pieces that follow each other. Valid as
 * long as the result. Returns 0 beyond the last piece. */
BASIN_API int basin_result_piece(const basin_result* result, uint32_t tensor, size_t index,
                                 const void** data, size_t* bytes);
BASIN_API void basin_result_free(basin_result* result);

/* ---- values: a copy of bits from one worker, to whoever asks for it */

typedef enum basin_hold {
  BASIN_COPY = 0,
  BASIN_IN_PLACE = 1,
  BASIN_HOLD_INT = 0x7fffffff
} basin_hold;

/* This worker can serve the tensor, of this version, from now on. A newer version replaces it. */
BASIN_API basin_code basin_announce(basin_worker* worker, const char* lane,
                                    const basin_tensor* tensor, uint64_t version, const void* data,
                                    size_t bytes, basin_hold hold, basin_error** error);
BASIN_API basin_code basin_stop_serving(basin_worker* worker, const char* lane, const char* tensor,
                                        basin_error** error);
/* Around whatever writes to memory that was announced in place: optimizer.step(). */
BASIN_API void basin_step_begin(basin_worker* worker);
BASIN_API void basin_step_end(basin_worker* worker);
/* Waits for the value as `source` announced it, from whoever has it when that is NULL, and copies
 * it. Another dtype or shape than it has is BASIN_MISMATCH. BASIN_UNAVAILABLE: whoever sent it was
 * lost, and nobody else has announced it yet. BASIN_EVICTED: this worker is no member any more. */
BASIN_API basin_code basin_get(basin_worker* worker, const char* lane, const basin_tensor* tensor,
                               uint64_t version, const char* source, int64_t timeout, void* to,
                               size_t bytes, basin_error** error);
/* The worker of rank `root` announces `data`, the others receive it there; it has the tensor's
 * `bytes` on all of them. */
BASIN_API basin_code basin_broadcast(basin_worker* worker, const char* lane,
                                     const basin_tensor* tensor, uint64_t version, uint32_t root,
                                     void* data, size_t bytes, int64_t timeout,
                                     basin_error** error);

/* ---- how it is going */

/* Why the trainer does something else, and for how long: it is named with the reason when others
 * wait for it. 0: no longer. */
BASIN_API basin_code basin_busy(basin_worker* worker, const char* reason, int64_t expected,
                                basin_error** error);
/* Out of data: contributes to no further round, and is not missed. */
BASIN_API basin_code basin_finished(basin_worker* worker, basin_error** error);
/* Leaves the job; rounds in flight fail. Returns when the aggregator has taken note, or does not
 * answer. */
BASIN_API basin_code basin_leave(basin_worker* worker, basin_error** error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* BASIN_BASIN_H_ */
