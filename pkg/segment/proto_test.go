// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	federationv1 "navix.sh/atoll/api/federation/v1"
)

func TestProtoRoundTrip(t *testing.T) {
	for _, s := range []*Segment{sample(), uuids(), sample().Describe(almostUID, 3, Defaults{}), New(Key{"a", "b"})} {
		bytes, err := proto.Marshal(s.Proto())
		if err != nil {
			t.Fatal(err)
		}
		var p federationv1.EnvSegment
		if err := proto.Unmarshal(bytes, &p); err != nil {
			t.Fatal(err)
		}
		got, err := FromProto(&p)
		if err != nil {
			t.Fatal(err)
		}
		if !got.Equal(s) || got.Digest() != s.Digest() {
			t.Errorf("got %+v, want %+v", got, s)
		}
		if got.UID() != s.UID() {
			t.Errorf("uid is %q, want %q", got.UID(), s.UID())
		}
		if len(s.Members()) > 0 && got.Members()[0] != s.Members()[0] {
			t.Errorf("member is %+v, want %+v", got.Members()[0], s.Members()[0])
		}
	}
}

func TestFromProtoOrdersMembers(t *testing.T) {
	p := sample().Proto()
	slices.Reverse(p.Members)
	s, err := FromProto(p)
	if err != nil {
		t.Fatal(err)
	}
	if s.Digest() != sample().Digest() {
		t.Error("the order of members on the wire makes a difference")
	}
}

func TestFromProtoRefuses(t *testing.T) {
	env := func(namespace, name string, members ...string) *federationv1.EnvSegment {
		s := &federationv1.EnvSegment{Key: &federationv1.EnvKey{Namespace: namespace, Name: name}}
		for _, m := range members {
			s.Members = append(s.Members, &federationv1.MemberSegment{Name: m})
		}
		return s
	}
	for name, c := range map[string]struct {
		segment *federationv1.EnvSegment
		says    string
	}{
		"no key":          {&federationv1.EnvSegment{}, "incomplete"},
		"no segment":      {nil, "incomplete"},
		"no namespace":    {env("", "a"), "incomplete"},
		"no name":         {env("n", ""), "incomplete"},
		"member twice":    {env("n", "a", "x", "y", "x"), `member "x" twice`},
		"nameless member": {env("n", "a", ""), "member without a name"},
	} {
		s, err := FromProto(c.segment)
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.says) || s != nil {
			t.Errorf("%s: %v, %v, want an error that says %q", name, s, err, c.says)
		}
	}
}

func TestFromProtoReadsWhatNewerPeersSay(t *testing.T) {
	m := MemberFromProto(&federationv1.MemberSegment{Name: "a", State: 77, Idle: -3})
	if m.State != Unknown || m.Idle != 0 {
		t.Errorf("state %s, idle %d; want Unknown and 0", m.State, m.Idle)
	}
}
