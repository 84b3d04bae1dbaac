// SPDX-License-Identifier: Apache-2.0

package problem

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Domain is the ErrorInfo domain of every error of Atoll.
const Domain = "atoll.navix.sh"

// ValidDuration describes a valid duration. Its examples are also valid for the timeout of a hook, which is at most 5m.
const ValidDuration = `a duration such as "90s" or "5m"`

// Reason is the machine-readable cause of an error.
type Reason string

// The reasons that callers may rely on.
const (
	Invalid         Reason = "INVALID"
	Unauthenticated Reason = "UNAUTHENTICATED"
	Forbidden       Reason = "FORBIDDEN"
	NotFound        Reason = "NOT_FOUND"
	// Misconfigured: a retry does not help, because a person must fix the cause.
	Misconfigured    Reason = "MISCONFIGURED"
	ClaimKeyConflict Reason = "CLAIM_KEY_CONFLICT"
	QueueFull        Reason = "QUEUE_FULL"
	RateLimited      Reason = "RATE_LIMITED"
	// Quota: the caller's team or key has reached its limit.
	Quota          Reason = "QUOTA"
	NoCapacity     Reason = "NO_CAPACITY"
	Recovering     Reason = "RECOVERING"
	OutcomeUnknown Reason = "OUTCOME_UNKNOWN"
	Deadline       Reason = "DEADLINE"
	Unimplemented  Reason = "UNIMPLEMENTED"
	// Expired: what a resume token refers to is no longer kept.
	Expired Reason = "EXPIRED"
	// Unavailable: a hub or worker cannot serve now; a retry may succeed.
	Unavailable Reason = "UNAVAILABLE"
	// Internal: a bug in Atoll.
	Internal Reason = "INTERNAL"
)

// RetrySoon is the retry delay of a transient error.
const RetrySoon = 2 * time.Second

// kind contains the properties of a reason.
type kind struct {
	code    codes.Code
	http    int
	exit    int           // exit code of atollctl, as listed in docs/sandboxes.md
	retry   time.Duration // delay that a worker's refusal recommends; zero: none
	shown   bool          // the caller sees the reason of a worker's refusal; else it is NO_CAPACITY
	failure bool          // a worker's refusal counts as a failure of its cluster, to a rollout of the catalogue
}

var kinds = map[Reason]kind{
	Invalid:          {code: codes.InvalidArgument, http: http.StatusBadRequest, exit: 2},
	Unauthenticated:  {code: codes.Unauthenticated, http: http.StatusUnauthorized, exit: 7},
	Forbidden:        {code: codes.PermissionDenied, http: http.StatusForbidden, exit: 7, shown: true},
	NotFound:         {code: codes.NotFound, http: http.StatusNotFound, exit: 3},
	Misconfigured:    {code: codes.FailedPrecondition, http: http.StatusUnprocessableEntity, exit: 8, shown: true, failure: true},
	ClaimKeyConflict: {code: codes.AlreadyExists, http: http.StatusConflict, exit: 5},
	QueueFull:        {code: codes.ResourceExhausted, http: http.StatusTooManyRequests, exit: 4, retry: RetrySoon, shown: true, failure: true},
	Expired:          {code: codes.OutOfRange, http: http.StatusGone, exit: 4},
	Quota:            {code: codes.ResourceExhausted, http: http.StatusTooManyRequests, exit: 4},
	RateLimited:      {code: codes.ResourceExhausted, http: http.StatusTooManyRequests, exit: 4},
	NoCapacity:       {code: codes.Unavailable, http: http.StatusServiceUnavailable, exit: 4, retry: RetrySoon, shown: true, failure: true},
	Recovering:       {code: codes.Unavailable, http: http.StatusServiceUnavailable, exit: 4, shown: true, failure: true},
	Unavailable:      {code: codes.Unavailable, http: http.StatusServiceUnavailable, exit: 4, retry: RetrySoon, shown: true, failure: true},
	OutcomeUnknown:   {code: codes.DeadlineExceeded, http: http.StatusGatewayTimeout, exit: 6, failure: true},
	Deadline:         {code: codes.DeadlineExceeded, http: http.StatusGatewayTimeout, exit: 4, shown: true, failure: true},
	Unimplemented:    {code: codes.Unimplemented, http: http.StatusNotImplemented, exit: 1},
	Internal:         {code: codes.Internal, http: http.StatusInternalServerError, exit: 1, failure: true},
}

// kind returns the kind of Internal for an unknown reason of a newer peer.
func (r Reason) kind() kind {
	if k, ok := kinds[r]; ok {
		return k
	}
	return kinds[Internal]
}

// Reasons returns every reason, in the order of their statuses.
func Reasons() []Reason {
	return slices.SortedFunc(maps.Keys(kinds), func(a, b Reason) int {
		return cmp.Or(cmp.Compare(a.HTTPStatus(), b.HTTPStatus()), cmp.Compare(a, b))
	})
}

// Code returns the gRPC status code of the reason.
func (r Reason) Code() codes.Code { return r.kind().code }

// HTTPStatus returns the HTTP status of the reason.
func (r Reason) HTTPStatus() int { return r.kind().http }

// ExitCode returns the exit code of atollctl.
func (r Reason) ExitCode() int { return r.kind().exit }

// RetryAfter returns the delay that a refusal with this reason recommends; zero: none.
func (r Reason) RetryAfter() time.Duration { return r.kind().retry }

// Shown reports whether the caller of a claim sees the reason of a worker's refusal. It is false for a reason that concerns the worker
// and not the claim.
func (r Reason) Shown() bool { return r.kind().shown }

// Failure reports whether a worker's refusal of a claim counts as a failure of its cluster. It is false for a mistake of the caller.
func (r Reason) Failure() bool { return r.kind().failure }

// Field is one invalid value of a request.
type Field struct {
	Field string `json:"field"` // JSON path, as the caller wrote it
	Value string `json:"value"` // the given value
	Valid string `json:"valid"` // what is valid
}

// violation is the reason in every field violation. It is a constant, as google.rpc.BadRequest requires.
const violation = "INVALID_VALUE"

// between separates a value from what is valid.
const between = " is not valid, want "

func (f Field) describe() string { return strconv.Quote(f.Value) + between + f.Valid }

// fieldOf parses a violation that GRPCStatus wrote, or one of an older peer, which put the value into the reason.
func fieldOf(v *errdetails.BadRequest_FieldViolation) Field {
	f := Field{Field: v.GetField(), Value: v.GetReason(), Valid: v.GetDescription()}
	if v.GetReason() != violation {
		return f
	}
	f.Value = ""
	quoted, err := strconv.QuotedPrefix(v.GetDescription())
	if err != nil {
		return f
	}
	if valid, ok := strings.CutPrefix(v.GetDescription()[len(quoted):], between); ok {
		f.Value, _ = strconv.Unquote(quoted)
		f.Valid = valid
	}
	return f
}

// Error is an error that the caller can act on.
type Error struct {
	Reason     Reason
	Message    string
	Fields     []Field
	ClaimKey   string        // set if the call has one
	RetryAfter time.Duration // zero: no advice
	cause      error
}

// New returns an error of the given reason.
func New(reason Reason, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Reason: reason, Message: Plain(err.Error()), cause: errors.Unwrap(err)}
}

// InvalidField returns an error about one field of a request.
func InvalidField(field, value, valid string) *Error {
	return InvalidFields(Field{Field: field, Value: value, Valid: valid})
}

// InvalidFields returns an error about several fields of a request.
func InvalidFields(fields ...Field) *Error {
	parts := make([]string, 0, len(fields))
	for _, f := range fields {
		parts = append(parts, f.Field+": "+f.describe())
	}
	return &Error{Reason: Invalid, Message: strings.Join(parts, "; "), Fields: fields}
}

// rpcError matches the prefix of grpc-go's errors.
var rpcError = regexp.MustCompile(`rpc error: code = \w+ desc = `)

// Plain removes the prefixes of grpc-go from an error's text.
func Plain(text string) string {
	if !strings.Contains(text, "rpc error:") {
		return text
	}
	return rpcError.ReplaceAllString(text, "")
}

// WithRetryAfter returns e with a delay after which to retry.
func (e *Error) WithRetryAfter(d time.Duration) *Error {
	e.RetryAfter = d
	return e
}

func (e *Error) Error() string { return string(e.Reason) + ": " + e.Message }

func (e *Error) Unwrap() error { return e.cause }

// GRPCStatus converts e to a gRPC status. The status package calls it.
func (e *Error) GRPCStatus() *status.Status {
	info := &errdetails.ErrorInfo{Reason: string(e.Reason), Domain: Domain}
	if e.ClaimKey != "" {
		info.Metadata = map[string]string{"claimKey": e.ClaimKey}
	}
	st, err := status.New(e.Reason.Code(), e.Message).WithDetails(info)
	if err != nil {
		return status.New(e.Reason.Code(), e.Message)
	}
	if len(e.Fields) > 0 {
		bad := &errdetails.BadRequest{}
		for _, f := range e.Fields {
			bad.FieldViolations = append(bad.FieldViolations,
				&errdetails.BadRequest_FieldViolation{Field: f.Field, Reason: violation, Description: f.describe()})
		}
		if with, err := st.WithDetails(bad); err == nil {
			st = with
		}
	}
	if e.RetryAfter > 0 {
		if with, err := st.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(e.RetryAfter)}); err == nil {
			st = with
		}
	}
	return st
}

// FromError converts err to an *Error: the one that it wraps, the one in its gRPC status, or one derived from its status code. It returns
// nil for nil.
func FromError(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	st, ok := status.FromError(err)
	if !ok {
		return FromStatus(status.FromContextError(err), err)
	}
	return FromStatus(st, err)
}

// FromStatus converts a status with the details that GRPCStatus wrote.
func FromStatus(st *status.Status, cause error) *Error {
	e := &Error{Reason: reasonOf(st.Code()), Message: Plain(st.Message()), cause: cause}
	for _, detail := range st.Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			if d.GetDomain() == Domain {
				if _, known := kinds[Reason(d.GetReason())]; known { // unknown reasons are of a newer peer; the code suffices then
					e.Reason = Reason(d.GetReason())
				}
				e.ClaimKey = d.GetMetadata()["claimKey"]
			}
		case *errdetails.BadRequest:
			for _, v := range d.GetFieldViolations() {
				e.Fields = append(e.Fields, fieldOf(v))
			}
		case *errdetails.RetryInfo:
			e.RetryAfter = d.GetRetryDelay().AsDuration()
		}
	}
	return e
}

func reasonOf(code codes.Code) Reason {
	switch code {
	case codes.InvalidArgument, codes.OutOfRange:
		return Invalid
	case codes.FailedPrecondition:
		return Misconfigured
	case codes.Unauthenticated:
		return Unauthenticated
	case codes.PermissionDenied:
		return Forbidden
	case codes.NotFound:
		return NotFound
	case codes.AlreadyExists:
		return ClaimKeyConflict
	case codes.ResourceExhausted:
		return RateLimited
	case codes.Unavailable:
		return Unavailable
	case codes.DeadlineExceeded, codes.Canceled:
		return Deadline
	case codes.Unimplemented:
		return Unimplemented
	default:
		return Internal
	}
}
