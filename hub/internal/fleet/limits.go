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

// Limits bound the state that the hub keeps of one cluster. A cluster above a limit is degraded: the hub drops the excess, which affects
// only that cluster (I14). 0 means the default.
type Limits struct {
	Envs    int
	Members int // of all Envs
	Keys    int // claim keys in its key index
	Bytes   int // of its segments, and of a report while it arrives
}

// The default limits are twice the size of a large Kubernetes cluster.
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

// errLimit is wrapped with the limit that a cluster exceeds.
var errLimit = errors.New("over the cluster's limit")

// room counts a cluster's holdings while a report is parsed.
type room struct {
	limits               *Limits
	envs, members, bytes int
}

// free releases the room of a part that is about to be removed.
func (r *room) free(p *part) {
	r.envs--
	r.members -= len(p.segment.Members())
	r.bytes -= int(p.size)
}

// take reserves room for the next segment of a part; p is nil for a new part. A segment that is no larger than the previous one always
// fits.
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

// The rate limit of a cluster's new incarnations; because each one is a write to the shared registry.
const (
	beginBurst = 100
	beginEvery = 3 * time.Second
)

// allowance counts the incarnations that were spent of beginBurst, and returns one every beginEvery.
type allowance struct {
	spent int
	since time.Duration // the returned allowance up to this time has been subtracted from spent
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

// itemSize is the approximate memory of a message without its texts.
const itemSize = 128

// sizeOf returns the approximate memory of a chunk.
func sizeOf(r *federationv1.Report) int {
	n := len(r.GetSegments()) + len(r.GetRemoved()) + len(r.GetKeys())
	for _, s := range r.GetSegments() {
		n += 1 + len(s.GetMembers())
	}
	return proto.Size(r) + n*itemSize
}

// checkHello returns an error if a text of a hello is out of bounds; because these texts are kept, shown and stored.
func checkHello(h *federationv1.Hello) error {
	for _, text := range []struct{ field, value string }{
		{"version", h.GetVersion()}, {"cluster_uid", h.GetClusterUid()}, {"term", h.GetTerm()},
		{"hosting.host", h.GetHosting().GetHost()},
	} {
		if len(text.value) > segment.MaxUID {
			return fmt.Errorf("%s %s is not valid, want at most %d bytes", text.field, segment.Quote(text.value), segment.MaxUID)
		}
	}
	if d := h.GetHosting().GetLatency(); d != nil && !d.IsValid() {
		return fmt.Errorf("hosting.latency %d s and %d ns is not valid, want a duration", d.GetSeconds(), d.GetNanos())
	}
	return checkTrust(h.GetTrust())
}
