// SPDX-License-Identifier: Apache-2.0

// Package calls sends one call to one worker, and reads the response.
//
// In: dispatches. Out: responses without errors, sandboxes, or typed errors. It decides nothing about claims.
//
//   - A call takes at most 10 s; because a caller waits for it.
//   - A call to a worker that has just begun a new session is repeated once; because the worker did not process the call.
//   - A sandbox is accepted only if the id ends in the name in the worker's certificate (I12, I15):
//     TestAnswersOfTheWrongClusterAreRefused.
//   - A sandbox has a bounded size, which the ledger can store; because terminal records are stored: TestI14ASandboxIsBounded.
//   - Times that JSON cannot express are removed from a sandbox; because no list with it could be shown:
//     TestASandboxCanBeShown.
package calls

import (
	"context"
	"errors"
	"time"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/validate"
)

// ErrNotConnected means that nothing was sent. Every other error of a Dispatcher leaves the outcome unclear.
var ErrNotConnected = errors.New("the cluster is not connected")

// Dispatcher sends calls to workers.
type Dispatcher interface {
	// Dispatch sends one call and waits for its response, at most until ctx ends. It sets the fields that belong to the stream.
	// ErrNotConnected means that nothing was sent; after any other error the outcome is unclear.
	Dispatch(ctx context.Context, clusterID string, d *federationv1.Dispatch) (*federationv1.Answer, error)
}

const (
	// Timeout bounds every call except a claim.
	Timeout = 10 * time.Second
	// maxSandbox bounds a sandbox in bytes, several times what a request may put into one.
	maxSandbox = 512 << 10
)

// Workers calls the workers that a Dispatcher reaches.
type Workers struct{ Dispatcher }

// Call sends a call that is not a claim. The response has no error.
func (w Workers) Call(ctx context.Context, cluster string, d *federationv1.Dispatch) (*federationv1.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	answer, err := w.Dispatch(ctx, cluster, proto.CloneOf(d))
	if err == nil && answer.GetDisposition() == federationv1.Disposition_STALE_SESSION {
		answer, err = w.Dispatch(ctx, cluster, d)
	}
	switch {
	case errors.Is(err, ErrNotConnected):
		return nil, problem.New(problem.Unavailable, "cluster %s is not connected", cluster).WithRetryAfter(problem.RetrySoon)
	case err != nil:
		return nil, problem.New(problem.Unavailable, "cluster %s did not respond: %w", cluster, err).WithRetryAfter(problem.RetrySoon)
	case answer.GetDisposition() == federationv1.Disposition_STALE_SESSION:
		return nil, problem.New(problem.Unavailable, "cluster %s is changing leaders", cluster).WithRetryAfter(problem.RetrySoon)
	case answer.GetError() != nil:
		return nil, ErrorOf(answer)
	}
	return answer, nil
}

// Unkeyed reports whether a call is a claim without a key.
func Unkeyed(d *federationv1.Dispatch) bool {
	claim := d.GetClaim()
	return claim != nil && claim.GetKeyHash() == ""
}

// Sandbox sends a call whose response is a sandbox.
func (w Workers) Sandbox(ctx context.Context, cluster string, d *federationv1.Dispatch) (*sandboxv1.Sandbox, error) {
	answer, err := w.Call(ctx, cluster, d)
	if err != nil {
		return nil, err
	}
	return answer.GetSandbox(), Stamp(answer.GetSandbox(), cluster)
}

// Stamp sets the sandbox's cluster to the one that responded (I12). It returns an error for a sandbox whose id names another cluster (I15),
// and for a sandbox that is too large to store (I14).
func Stamp(sandbox *sandboxv1.Sandbox, cluster string) error {
	if from, ok := validate.ClusterOf(sandbox.GetId()); !ok || from != cluster {
		return problem.New(problem.Internal, "cluster %s returned sandbox id %q, which is not one of its own", cluster,
			validate.Clip(sandbox.GetId()))
	}
	if size := proto.Size(sandbox); size > maxSandbox {
		return problem.New(problem.Internal, "cluster %s returned sandbox %s of %d bytes, want at most %d", cluster, sandbox.GetId(), size,
			maxSandbox)
	}
	sandbox.ClusterId, sandbox.StaleAge = cluster, nil
	dropUnshowable(sandbox)
	return nil
}

// ErrorOf returns the error of a response, or nil if it has none.
func ErrorOf(answer *federationv1.Answer) *problem.Error {
	e := answer.GetError()
	if e == nil {
		return nil
	}
	return problem.FromStatus(status.FromProto(&spb.Status{Code: e.GetCode(), Message: e.GetMessage(), Details: e.GetDetails()}), nil)
}

// ErrorProto is the reverse of ErrorOf.
func ErrorProto(err *problem.Error) *federationv1.Error {
	st := err.GRPCStatus().Proto()
	return &federationv1.Error{Code: st.GetCode(), Message: st.GetMessage(), Details: st.GetDetails()}
}

// dropUnshowable removes from a worker's sandbox the values that JSON cannot express: times and durations out of range. With one of them,
// no list page with the sandbox could be returned.
func dropUnshowable(s *sandboxv1.Sandbox) {
	for _, t := range []**timestamppb.Timestamp{&s.ClaimedAt, &s.StartedAt, &s.TerminatedAt, &s.LastActiveAt} {
		if *t != nil && !(*t).IsValid() {
			*t = nil
		}
	}
	for _, d := range []**durationpb.Duration{&s.IdleTimeout, &s.StartupTimeout, &s.MaxLifetime, &s.FirstActivityTimeout} {
		if *d != nil && !(*d).IsValid() {
			*d = nil
		}
	}
}
