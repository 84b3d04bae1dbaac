// SPDX-License-Identifier: Apache-2.0

package calls

import (
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
)

// Whatever times and durations a worker sends in its sandbox, it can be shown, including those of future fields.
func TestASandboxCanBeShown(t *testing.T) {
	s := &sandboxv1.Sandbox{Id: "01arz3ndektsv4rrffq69g5fav-east"}
	fields := s.ProtoReflect().Descriptor().Fields()
	odd := 0
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.Message() == nil || f.IsMap() || f.IsList() {
			continue
		}
		switch f.Message().FullName() {
		case "google.protobuf.Timestamp":
			s.ProtoReflect().Set(f, protoreflect.ValueOfMessage((&timestamppb.Timestamp{Seconds: math.MaxInt64}).ProtoReflect()))
			odd++
		case "google.protobuf.Duration":
			s.ProtoReflect().Set(f, protoreflect.ValueOfMessage((&durationpb.Duration{Seconds: 1, Nanos: -1}).ProtoReflect()))
			odd++
		}
	}
	if _, err := protojson.Marshal(s); err == nil || odd < 7 {
		t.Fatalf("%d odd fields can be shown", odd)
	}
	must.Succeed(t, Stamp(s, "east"))
	if _, err := protojson.Marshal(s); err != nil {
		t.Error(err)
	}
}

// TestI14ASandboxIsBounded: the size of a kept sandbox does not depend on what its cluster writes into it.
func TestI14ASandboxIsBounded(t *testing.T) {
	s := &sandboxv1.Sandbox{Id: "01arz3ndektsv4rrffq69g5fav-east", FailureMessage: strings.Repeat("x", maxSandbox/2)}
	if err := Stamp(s, "east"); err != nil {
		t.Error(err)
	}
	s.FailureMessage += s.GetFailureMessage()
	if err := Stamp(s, "east"); err == nil {
		t.Error("a sandbox of any size is taken")
	}
}
