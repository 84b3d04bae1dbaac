// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/durationpb"
)

func sample() *Segment {
	return New(Key{"default", "py"}).Describe("u1", 3, Defaults{Template: "python", InstanceType: "cpu", Multiplier: 2}).With(
		Member{
			Name: "a", Shape: Share(Shape{InstanceType: "cpu", ScalingGroup: "g", Image: "py:3", Multiplier: 2, Priority: -1}),
			Idle: 5, ReadyIdle: 4, Running: 3, Desired: 8, Current: 8, Pending: 1, QueueCapacity: 16, State: Saturated, CanGrow: true,
			SaturatedFor: time.Minute,
		},
		Member{Name: "b", Idle: 7, State: Missing},
	)
}

// uuids has a canonical uid, which is kept in another form.
func uuids() *Segment { return sample().Describe(aUID, 3, sample().Defaults.Get()) }

const (
	aUID      = "6f9619ff-8b86-d011-b42d-00c04fc964ff"
	almostUID = "6f9619ff-8b86-d011-b42d-00c04fc964fg"
)

func shaped(edit func(*Shape)) func(*Segment) {
	return func(s *Segment) {
		shape := s.Members()[0].Shape.Get()
		edit(&shape)
		s.Members()[0].Shape = Share(shape)
	}
}

func defaulted(edit func(*Defaults)) func(*Segment) {
	return func(s *Segment) {
		d := s.Defaults.Get()
		edit(&d)
		s.Describe(s.UID(), s.Generation, d)
	}
}

// edits changes one field each; every one of them must show in the digest and in Equal.
var edits = map[string]func(*Segment){
	"namespace":          func(s *Segment) { s.key = &Key{"defaul", "py"} },
	"name":               func(s *Segment) { s.key = &Key{"default", "tpy"} },
	"uid":                func(s *Segment) { s.Describe("u2", s.Generation, s.Defaults.Get()) },
	"canonical uid":      func(s *Segment) { s.Describe(aUID, s.Generation, s.Defaults.Get()) },
	"almost canonical":   func(s *Segment) { s.Describe(almostUID, s.Generation, s.Defaults.Get()) },
	"another":            func(s *Segment) { s.Describe(aUID[:35]+"e", s.Generation, s.Defaults.Get()) },
	"uid in capitals":    func(s *Segment) { s.Describe(strings.ToUpper(aUID), s.Generation, s.Defaults.Get()) },
	"uid of zeros":       func(s *Segment) { s.Describe(uuid.Nil.String(), s.Generation, s.Defaults.Get()) },
	"no uid":             func(s *Segment) { s.Describe("", s.Generation, s.Defaults.Get()) },
	"generation":         func(s *Segment) { s.Generation++ },
	"template":           defaulted(func(d *Defaults) { d.Template = "" }),
	"default type":       defaulted(func(d *Defaults) { d.InstanceType = "gpu" }),
	"default multiplier": defaulted(func(d *Defaults) { d.Multiplier = 0 }),
	"member gone":        func(s *Segment) { s.With(s.Members()[0]) },
	"member name":        func(s *Segment) { s.Members()[1].Name = "c" },
	"instance type":      shaped(func(s *Shape) { s.InstanceType = "" }),
	"scaling group":      shaped(func(s *Shape) { s.ScalingGroup = "h" }),
	"image":              shaped(func(s *Shape) { s.Image = "py:4" }),
	"multiplier":         shaped(func(s *Shape) { s.Multiplier = 1 }),
	"priority":           shaped(func(s *Shape) { s.Priority = 1 }),
	"idle":               func(s *Segment) { s.Members()[0].Idle++ },
	"ready idle":         func(s *Segment) { s.Members()[0].ReadyIdle++ },
	"running":            func(s *Segment) { s.Members()[0].Running++ },
	"desired":            func(s *Segment) { s.Members()[0].Desired++ },
	"current":            func(s *Segment) { s.Members()[0].Current++ },
	"pending":            func(s *Segment) { s.Members()[0].Pending++ },
	"queue capacity":     func(s *Segment) { s.Members()[0].QueueCapacity++ },
	"state":              func(s *Segment) { s.Members()[0].State = Active },
	"can grow":           func(s *Segment) { s.Members()[0].CanGrow = false },
}

func TestDigestSeesEveryField(t *testing.T) {
	seen := map[uint64]string{sample().Digest(): "unchanged"}
	for name, edit := range edits {
		s := sample()
		edit(s)
		if other, dup := seen[s.Digest()]; dup {
			t.Errorf("%s has the digest of %s", name, other)
		}
		seen[s.Digest()] = name
		if s.Equal(sample()) {
			t.Errorf("%s: Equal does not see the change", name)
		}
	}
}

func TestDigestIgnoresWhatCountsDown(t *testing.T) {
	s := sample()
	s.Members()[0].SaturatedFor = time.Second
	if s.Digest() != sample().Digest() || !s.Equal(sample()) {
		t.Error("a remaining duration makes a difference")
	}
}

// A hub that is older than a field drops it, and would respond to every heartbeat with a request for a complete report.
func TestDigestIgnoresWhatOlderHubsDrop(t *testing.T) {
	s := sample()
	shaped(func(s *Shape) { s.StartupTimeout = time.Minute })(s)
	if s.Digest() != sample().Digest() {
		t.Error("the startup timeout is in the digest")
	}
	if s.Equal(sample()) {
		t.Error("a change of it is not reported")
	}
	counted := sample()
	counted.Members()[0].SetClaiming(math.MaxInt32)
	if counted.Digest() != sample().Digest() || counted.Equal(sample()) {
		t.Error("the Pods that are being claimed are in the digest, or a change of them is not reported")
	}
	if got, err := FromProto(counted.Proto()); err != nil || !got.Equal(counted) || got.Members()[0].Claiming != math.MaxUint16 {
		t.Errorf("%v came to %v, %v", counted.Proto(), got, err)
	}
	named := sample()
	named.Defaults = Share(Defaults{Named: "mars,west"})
	unnamed := sample()
	unnamed.Defaults = Share(Defaults{})
	if named.Digest() != unnamed.Digest() || named.Equal(unnamed) {
		t.Error("the clusters that an Env names are in the digest, or a change of them is not reported")
	}
	p := s.Proto()
	if got, err := FromProto(p); err != nil || !got.Equal(s) {
		t.Errorf("%v came to %v, %v", p, got, err)
	}
	p.Members[0].StartupTimeout = durationpb.New(-time.Second)
	if got, err := FromProto(p); err != nil || got.Members()[0].Shape.Get().StartupTimeout != 0 {
		t.Errorf("a negative one came to %v, %v", got, err)
	}
}

// TestDigestGolden pins the encoding, which builds compare. A change of it must raise digestVersion.
func TestDigestGolden(t *testing.T) {
	for _, c := range []struct {
		segment *Segment
		want    uint64
	}{
		{sample(), 0x73ea9af48a5790e7},
		{New(Key{"a", "b"}), 0x59f57cf3d8896460},
		{uuids(), 0x5854feb83acca01b},
	} {
		if got := c.segment.Digest(); got != c.want {
			t.Errorf("digest of %s is %#x, want %#x", c.segment.Key(), got, c.want)
		}
	}
}

func randomSegment(r *rand.Rand) *Segment {
	s := New(Key{"ns", fmt.Sprint("env-", r.IntN(12))})
	s.Generation = int64(r.IntN(3))
	var members []Member
	for i := range r.IntN(3) {
		members = append(members, Member{Name: fmt.Sprint("m", i), Idle: int32(r.IntN(3)), State: Active})
	}
	return s.With(members...)
}

// TestSnapshotDigestIsThatOfItsContent compares the incrementally updated digest with that of a new snapshot, in another order.
func TestSnapshotDigestIsThatOfItsContent(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var s Snapshot
	for step := range 3000 {
		if r.IntN(3) == 0 {
			s.Remove(randomSegment(r).Key())
		} else {
			s.Put(randomSegment(r))
		}
		var fresh Snapshot
		keys := s.Keys()
		slices.Reverse(keys)
		for _, k := range keys {
			fresh.Put(s.Get(k))
		}
		if fresh.Digest() != s.Digest() || fresh.Len() != s.Len() {
			t.Fatalf("step %d: digest %#x of %d, want %#x of %d", step, s.Digest(), s.Len(), fresh.Digest(), fresh.Len())
		}
	}
	for _, k := range s.Keys() {
		s.Remove(k)
	}
	if s.Digest() != 0 {
		t.Errorf("an empty snapshot has digest %#x", s.Digest())
	}
}

func TestDiffIsWhatApplyNeeds(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		var old, new Snapshot
		for range r.IntN(10) {
			old.Put(randomSegment(r))
		}
		for range r.IntN(10) {
			new.Put(randomSegment(r))
		}
		d := Diff(&old, &new)
		got := old.Clone()
		effective := got.Apply(d)
		if len(effective.Changed) != len(d.Changed) || len(effective.Removed) != len(d.Removed) {
			t.Fatal("a diff contains what makes no difference")
		}
		byKey := func(a, b *Segment) int { return a.Key().Compare(b.Key()) }
		if !slices.IsSortedFunc(d.Changed, byKey) || !slices.IsSortedFunc(d.Removed, Key.Compare) {
			t.Fatalf("a diff is not in the order of keys: %v", d)
		}
		if rest := Diff(got, &new); !rest.Empty() || got.Digest() != new.Digest() {
			t.Fatalf("after applying the diff there remains %v", rest)
		}
		if d.Empty() != (len(d.Changed)+len(d.Removed) == 0) {
			t.Fatalf("%v is empty: %t", d, d.Empty())
		}
		if again := got.Apply(d); !again.Empty() {
			t.Fatalf("applying a delta twice changes %v", again)
		}
	}
}

func TestOrder(t *testing.T) {
	ascending := []Order{{}, {1, 1}, {1, 2}, {2, 0}, {2, 1}, {3, 0}}
	for i, a := range ascending {
		for j, b := range ascending {
			if got, want := a.After(b), i > j; got != want {
				t.Errorf("%v after %v = %v, want %v", a, b, got, want)
			}
		}
	}
	keys := []Key{{"a", "b"}, {"a", "c"}, {"b", "a"}}
	for i, a := range keys {
		for j, b := range keys {
			if got, want := a.Compare(b), cmp.Compare(i, j); got != want {
				t.Errorf("%v compared with %v is %d, want %d", a, b, got, want)
			}
		}
	}
}

func TestTotalsLeaveOutMissingMembers(t *testing.T) {
	got := sample().Totals()
	want := Totals{Members: 2, Idle: 5, ReadyIdle: 4, Running: 3, Desired: 8, Pending: 1}
	if got != want {
		t.Errorf("totals are %+v, want %+v", got, want)
	}
}

func TestPutReportsChanges(t *testing.T) {
	var s Snapshot
	if !s.Put(sample()) || s.Put(sample()) {
		t.Fatal("the first put changes, the same again does not")
	}
	later := sample()
	later.Members()[0].SaturatedFor = time.Second
	if s.Put(later) {
		t.Error("a remaining duration counts as a change")
	}
	if got := s.Get(later.Key()).Members()[0].SaturatedFor; got != time.Second {
		t.Errorf("the newer duration was not kept: %s", got)
	}
}

// TestUIDIsKeptAsItWasGiven, in whichever form, and the form of API servers in less memory.
func TestUIDIsKeptAsItWasGiven(t *testing.T) {
	for text, canonical := range map[string]bool{
		aUID: true, almostUID: false, strings.ToUpper(aUID): false, uuid.Nil.String(): false, "": false, "u1": false,
		"{" + aUID + "}": false, "urn:uuid:" + aUID: false, strings.ReplaceAll(aUID, "-", ""): false,
	} {
		s := New(Key{"a", "b"}).Describe(text, 0, Defaults{})
		if got := s.UID(); got != text || (s.uid != uid{}) != canonical {
			t.Errorf("%q is kept as %q, in the short form: %t", text, got, s.uid != uid{})
		}
		for _, other := range []string{aUID, almostUID, "", aUID[:35] + "e", strings.ToUpper(aUID)} {
			if got, want := s.uid.is(other), canonical && text == other; got != want {
				t.Errorf("%q is %q: %t", text, other, got)
			}
		}
	}
}

func TestShown(t *testing.T) {
	first, second := sample().Members()[0].Shown(), sample().Members()[1].Shown()
	if first.GetSaturatedFor().AsDuration() != time.Minute || first.GetState() != "Saturated" || first.GetImage() != "py:3" {
		t.Errorf("%v", first)
	}
	if second.SaturatedFor != nil || second.GetIdle() != 7 {
		t.Errorf("%v", second)
	}
}

func TestEdge(t *testing.T) {
	one := func(ready int32, state State) *Segment {
		return New(Key{}).With(Member{Name: "main", ReadyIdle: ready, State: state})
	}
	two := New(Key{}).With(Member{Name: "main"}, Member{Name: "more"})
	for name, c := range map[string]struct {
		was, is *Segment
		want    bool
	}{
		"nothing":     {nil, nil, false},
		"new":         {nil, one(0, Active), true},
		"gone":        {one(0, Active), nil, true},
		"same":        {one(3, Active), one(3, Active), false},
		"fewer":       {one(3, Active), one(1, Active), false},
		"last idle":   {one(1, Active), one(0, Active), true},
		"first idle":  {one(0, Active), one(1, Active), true},
		"saturated":   {one(1, Active), one(1, Saturated), true},
		"more member": {one(0, Active), two, true},
	} {
		if got := Edge(c.was, c.is); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestFree(t *testing.T) {
	for _, c := range []struct {
		idle     int32
		claiming uint16
		inFlight int32
		want     int32
	}{
		{idle: 5, want: 5},
		{idle: 5, inFlight: 3, want: 2},
		{idle: 5, inFlight: 3, claiming: 2, want: 4},
		{idle: 5, inFlight: 1, claiming: 3, want: 5},
		{idle: 2, inFlight: 5, want: -3},
	} {
		m := Member{ReadyIdle: c.idle, Claiming: c.claiming}
		if got := m.Free(c.inFlight); got != c.want {
			t.Errorf("%+v: %d free", c, got)
		}
	}
}
