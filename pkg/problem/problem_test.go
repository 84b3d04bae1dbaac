// SPDX-License-Identifier: Apache-2.0

package problem

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"navix.sh/atoll/e2e/must"
)

func TestRoundTripThroughStatus(t *testing.T) {
	for reason, kind := range kinds {
		want := &Error{
			Reason: reason, Message: "why", ClaimKey: "k1", RetryAfter: 3 * time.Second,
			Fields: []Field{{Field: "image", Value: "x y", Valid: "an image reference"}},
		}
		st := status.Convert(want)
		if st.Code() != kind.code {
			t.Errorf("%s: code %s, want %s", reason, st.Code(), kind.code)
		}
		got := FromError(st.Err())
		if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Error{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", reason, diff)
		}
	}
}

func TestFromErrorKeepsTheChain(t *testing.T) {
	base := errors.New("disk gone")
	err := New(Internal, "writing claim: %w", base)
	if !errors.Is(err, base) {
		t.Fatalf("%v does not wrap its cause", err)
	}
	if got := FromError(fmt.Errorf("more: %w", err)); got != err {
		t.Fatalf("got %v, want the wrapped error itself", got)
	}
	for want, in := range map[Reason]error{
		Deadline: context.DeadlineExceeded,
		Internal: errors.New("other"),
		NotFound: status.Error(codes.NotFound, "no such thing"),
	} {
		if got := FromError(in); got.Reason != want {
			t.Errorf("%v: reason %s, want %s", in, got.Reason, want)
		}
	}
	if FromError(nil) != nil {
		t.Error("nil is not an error")
	}
}

func TestProblemDocument(t *testing.T) {
	rec := httptest.NewRecorder()
	New(NoCapacity, "nothing idle").WithRetryAfter(1500 * time.Millisecond).Write(rec)
	want := `{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"nothing idle","reason":"NO_CAPACITY"}` + "\n"
	if got := rec.Body.String(); got != want {
		t.Errorf("body %s, want %s", got, want)
	}
	if got := rec.Header().Get("Retry-After"); got != "2" {
		t.Errorf("Retry-After %q, want 2: rounded up", got)
	}
	if got := rec.Header().Get("Content-Type"); got != ContentType {
		t.Errorf("Content-Type %q", got)
	}
}

func TestExitCodesAreWhatTheDocsSay(t *testing.T) {
	text, err := os.ReadFile("../../docs/sandboxes.md")
	must.Succeed(t, err)
	for reason, kind := range kinds {
		if kind.exit == 1 {
			continue // the docs call it other
		}
		row := regexp.MustCompile(fmt.Sprintf(`(?m)^\| %d \|.*\b%s\b`, kind.exit, reason))
		if !row.Match(text) {
			t.Errorf("docs/sandboxes.md does not list %s with exit code %d", reason, kind.exit)
		}
	}
}

// The reason of a violation is a constant, and the value is read from the description; an older peer has it in the reason.
func TestFieldViolations(t *testing.T) {
	want := Field{Field: "image", Value: `x " is not valid, want y`, Valid: "an image, not \"x\""}
	st := InvalidFields(want).GRPCStatus()
	for _, detail := range st.Details() {
		if bad, ok := detail.(*errdetails.BadRequest); ok {
			v := bad.GetFieldViolations()[0]
			if v.GetReason() != "INVALID_VALUE" || !strings.Contains(v.GetDescription(), want.Valid) {
				t.Errorf("violation %v", v)
			}
		}
	}
	if got := FromStatus(st, nil).Fields; len(got) != 1 || got[0] != want {
		t.Errorf("read back %+v", got)
	}
	old := &errdetails.BadRequest_FieldViolation{Field: "image", Reason: "x y", Description: "an image"}
	if got := fieldOf(old); got != (Field{Field: "image", Value: "x y", Valid: "an image"}) {
		t.Errorf("of an older peer: %+v", got)
	}
}

func TestMessagesDoNotTellOfGRPC(t *testing.T) {
	inner := status.Error(codes.Unavailable, "connection refused")
	for _, e := range []*Error{New(Unavailable, "cluster east did not answer: %w", inner), FromError(fmt.Errorf("asking: %w", inner))} {
		if strings.Contains(e.Message, "rpc error") || !strings.HasSuffix(e.Message, ": connection refused") {
			t.Errorf("message %q", e.Message)
		}
	}
}

func TestNearest(t *testing.T) {
	names := []string{"clusterId", "endedAfter", "namespace", "pageSize", "user"}
	for wrong, want := range map[string]string{"cluster": "clusterId", "pagesize": "pageSize", "namespce": "namespace", "xyz": "", "": "",
		"users": "user", "userName": "user", "bogus": "", "usr": "user", "nmespaec": "namespace"} {
		if got := Nearest(wrong, names); got != want {
			t.Errorf("nearest to %q is %q, want %q", wrong, got, want)
		}
	}
}
