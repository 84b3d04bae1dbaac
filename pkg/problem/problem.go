// SPDX-License-Identifier: Apache-2.0

package problem

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Domain is the ErrorInfo domain of every error of Atoll.
const Domain = "atoll.navix.sh"

// Reason is the machine-readable cause of an error.
type Reason string

// The reasons that callers may rely on.
const (
	Invalid          Reason = "INVALID"
	Unauthenticated  Reason = "UNAUTHENTICATED"
	Forbidden        Reason = "FORBIDDEN"
	NotFound         Reason = "NOT_FOUND"
	ClaimKeyConflict Reason = "CLAIM_KEY_CONFLICT"
	QueueFull        Reason = "QUEUE_FULL"
	RateLimited      Reason = "RATE_LIMITED"
	NoCapacity       Reason = "NO_CAPACITY"
	Recovering       Reason = "RECOVERING"
	OutcomeUnknown   Reason = "OUTCOME_UNKNOWN"
	Deadline         Reason = "DEADLINE"
	Unimplemented    Reason = "UNIMPLEMENTED"
	// Unavailable: a hub or worker cannot serve now; a retry may succeed.
	Unavailable Reason = "UNAVAILABLE"
	// Internal: a bug in Atoll.
	Internal Reason = "INTERNAL"
)

var kinds = map[Reason]struct {
	code codes.Code
	http int
}{
	Invalid:          {codes.InvalidArgument, http.StatusBadRequest},
	Unauthenticated:  {codes.Unauthenticated, http.StatusUnauthorized},
	Forbidden:        {codes.PermissionDenied, http.StatusForbidden},
	NotFound:         {codes.NotFound, http.StatusNotFound},
	ClaimKeyConflict: {codes.AlreadyExists, http.StatusConflict},
	QueueFull:        {codes.ResourceExhausted, http.StatusTooManyRequests},
	RateLimited:      {codes.ResourceExhausted, http.StatusTooManyRequests},
	NoCapacity:       {codes.Unavailable, http.StatusServiceUnavailable},
	Recovering:       {codes.Unavailable, http.StatusServiceUnavailable},
	Unavailable:      {codes.Unavailable, http.StatusServiceUnavailable},
	OutcomeUnknown:   {codes.DeadlineExceeded, http.StatusGatewayTimeout},
	Deadline:         {codes.DeadlineExceeded, http.StatusGatewayTimeout},
	Unimplemented:    {codes.Unimplemented, http.StatusNotImplemented},
	Internal:         {codes.Internal, http.StatusInternalServerError},
}

// RetrySoon is the retry delay of a transient error.
const RetrySoon = 2 * time.Second

// Field is one invalid value of a request.
type Field struct {
	Field string `json:"field"` // JSON path, as the caller wrote it
	Value string `json:"value"` // the given value
	Valid string `json:"valid"` // what is valid
}

// Error is a refusal or failure that the caller can act on.
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
	return &Error{Reason: reason, Message: err.Error(), cause: errors.Unwrap(err)}
}

// InvalidField refuses one field of a request.
func InvalidField(field, value, valid string) *Error {
	return InvalidFields(Field{Field: field, Value: value, Valid: valid})
}

// InvalidFields refuses several fields of a request at once.
func InvalidFields(fields ...Field) *Error {
	parts := make([]string, 0, len(fields))
	for _, f := range fields {
		parts = append(parts, fmt.Sprintf("%s: %q is not valid, want %s", f.Field, f.Value, f.Valid))
	}
	return &Error{Reason: Invalid, Message: strings.Join(parts, "; "), Fields: fields}
}

// WithRetryAfter returns e with a delay after which to retry.
func (e *Error) WithRetryAfter(d time.Duration) *Error {
	e.RetryAfter = d
	return e
}

func (e *Error) Error() string { return string(e.Reason) + ": " + e.Message }

func (e *Error) Unwrap() error { return e.cause }

// Code is the gRPC status code of the reason.
func (r Reason) Code() codes.Code {
	if k, ok := kinds[r]; ok {
		return k.code
	}
	return codes.Internal
}

// HTTPStatus is the HTTP status of the reason.
func (r Reason) HTTPStatus() int {
	if k, ok := kinds[r]; ok {
		return k.http
	}
	return http.StatusInternalServerError
}

// GRPCStatus lets the grpc status package read an *Error.
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
				&errdetails.BadRequest_FieldViolation{Field: f.Field, Reason: f.Value, Description: f.Valid})
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

// FromError returns err as an *Error: the one that it wraps, the one in its gRPC status, or one made of its status code. It
// returns nil for nil.
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

// FromStatus reads the details that GRPCStatus wrote.
func FromStatus(st *status.Status, cause error) *Error {
	e := &Error{Reason: reasonOf(st.Code()), Message: st.Message(), cause: cause}
	for _, detail := range st.Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			if d.GetDomain() == Domain {
				if _, known := kinds[Reason(d.GetReason())]; known { // else of a newer peer: the code is enough
					e.Reason = Reason(d.GetReason())
				}
				e.ClaimKey = d.GetMetadata()["claimKey"]
			}
		case *errdetails.BadRequest:
			for _, v := range d.GetFieldViolations() {
				e.Fields = append(e.Fields, Field{Field: v.GetField(), Value: v.GetReason(), Valid: v.GetDescription()})
			}
		case *errdetails.RetryInfo:
			e.RetryAfter = d.GetRetryDelay().AsDuration()
		}
	}
	return e
}

func reasonOf(code codes.Code) Reason {
	switch code {
	case codes.InvalidArgument, codes.OutOfRange, codes.FailedPrecondition:
		return Invalid
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
