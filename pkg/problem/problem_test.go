// SPDX-License-Identifier: Apache-2.0

package problem

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
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
