// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/segment"
)

// Limits are what the hub keeps of one cluster at most. A cluster that has more is degraded: what is over a limit is left out, and
// what it costs to find out is the cluster's own (I14). 0 takes the default.
type Limits struct {
	Envs    int
	Members int // of all Envs
	Keys    int // claim keys in its key index
	Bytes   int // of its segments, and of a report that is arriving
}

// The default limits hold twice what a large Kubernetes cluster has.
const (
	DefaultEnvs    = 20_000
	DefaultMembers = 100_000
	DefaultKeys    = 100_000
	DefaultBytes   = 64 << 20
)

func (l Limits) orDefaults() Limits {
	return Limits{
		Envs: cmp.Or(l.Envs, DefaultEnvs), Members: cmp.Or(l.Members, DefaultMembers),
		Keys: cmp.Or(l.Keys, DefaultKeys), Bytes: cmp.Or(l.Bytes, DefaultBytes),
	}
}

// errLimit is what is over one of a cluster's limits.
var errLimit = errors.New("over the cluster's limit")

// room counts what a report adds to a cluster's holdings.
type room struct {
	limits               *Limits
	envs, members, bytes int
}

// free makes room of a part that is about to go.
func (r *room) free(p *part) {
	r.envs--
	r.members -= len(p.segment.Members())
	r.bytes -= int(p.size)
}

// take makes room for the next segment of a part, nil for a new one. One that takes no more than before always has room.
func (r *room) take(p *part, members, size int) error {
	next := *r
	if p != nil {
		next.free(p)
	}
	next.envs++
	next.members += members
	next.bytes += size
	switch {
	case next.envs > r.limits.Envs && next.envs > r.envs:
		return fmt.Errorf("%w of %d Envs", errLimit, r.limits.Envs)
	case next.members > r.limits.Members && next.members > r.members:
		return fmt.Errorf("%w of %d members", errLimit, r.limits.Members)
	case next.bytes > r.limits.Bytes && next.bytes > r.bytes:
		return fmt.Errorf("%w of %d bytes of segments", errLimit, r.limits.Bytes)
	}
	*r = next
	return nil
}

// A cluster has its incarnations written down at this rate: each is a write to the registry that all share.
const (
	beginBurst = 100
	beginEvery = 3 * time.Second
)

// allowance counts what was spent of beginBurst, and is given back one every beginEvery.
type allowance struct {
	spent int
	since time.Duration // what was given back up to here is off spent
}

func (a *allowance) take(now time.Duration) bool {
	if back := int((now - a.since) / beginEvery); back >= a.spent {
		a.spent, a.since = 0, now
	} else {
		a.spent, a.since = a.spent-back, a.since+time.Duration(back)*beginEvery
	}
	if a.spent >= beginBurst {
		return false
	}
	a.spent++
	return true
}

// itemSize is about what a message takes in memory besides its texts.
const itemSize = 128

// sizeOf is about what a chunk takes in memory.
func sizeOf(r *federationv1.Report) int {
	n := len(r.GetSegments()) + len(r.GetRemoved()) + len(r.GetKeys())
	for _, s := range r.GetSegments() {
		n += 1 + len(s.GetMembers())
	}
	return proto.Size(r) + n*itemSize
}

// checkHello refuses a hello whose texts are not within bounds: they are kept, shown and written down.
func checkHello(h *federationv1.Hello) error {
	for _, text := range []struct{ field, value string }{
		{"version", h.GetVersion()}, {"cluster_uid", h.GetClusterUid()}, {"term", h.GetTerm()},
	} {
		if len(text.value) > segment.MaxUID {
			return fmt.Errorf("%s %s is not valid, want at most %d bytes", text.field, segment.Quote(text.value), segment.MaxUID)
		}
	}
	return nil
}
