// SPDX-License-Identifier: Apache-2.0

package sandboxes

import (
	"context"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/calls"
	"navix.sh/atoll/hub/internal/lastknown"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/pkg/listing"
	"navix.sh/atoll/pkg/watch"
)

// Feeds opens tunnels over which workers send changes of sandboxes.
type Feeds interface {
	// OpenFeed makes a cluster open a tunnel. tell passes the token to the cluster. The context bounds the opening.
	OpenFeed(ctx context.Context, cluster string, tell func(ctx context.Context, token string) error) (watch.Feed, error)
}

// Watch sends the changes of the sandboxes that the caller may list, until ctx ends or the watch must end.
func (s *Service) Watch(ctx context.Context, in *sandboxv1.WatchSandboxesRequest, send func(*sandboxv1.SandboxEvent) error) error {
	list, faults := listing.OfWatch(in)
	marks := listing.MarksOf(list)
	after, more := listing.UnsealMark(list)
	if err := append(faults, more...).Err(); err != nil {
		return err
	}
	list.ResumeToken = ""
	_, query, err := s.resolveList(ctx, list)
	if err != nil {
		return err
	}
	p := principal.From(ctx)
	if _, err := s.clustersOf(p, list); err != nil {
		return err
	}
	return s.watches.Watch(ctx, watch.Request{
		Key: p.Name, Team: p.Team, Scope: scopeOf(p), Cluster: list.GetClusterId(), SeesCluster: p.SeesCluster,
		Query: query, Sees: p.Sees, Marks: marks, After: after,
	}, send)
}

// scopeOf returns the scope of a caller. It depends on the caller and not on the request, so that there are no more copies than callers.
func scopeOf(p principal.Principal) (scope watch.Scope) {
	if !p.AllTeams {
		scope.Team = p.Team
	}
	scope.Namespace = p.Only()
	return scope
}

// CloseWatches ends all watches.
func (s *Service) CloseWatches() { s.watches.Close() }

// clusters implements watch.Source.
type clusters struct {
	fleet   Fleet
	workers calls.Workers
	feeds   Feeds
	known   *lastknown.Sandboxes // may be nil
}

// LastKnown implements watch.Source.
func (c clusters) LastKnown(cluster string, scope watch.Scope) (all []watch.Known) {
	if c.known == nil {
		return nil
	}
	for _, one := range c.known.Of(cluster, scope.Covers) {
		all = append(all, watch.Known{Sandbox: one.Sandbox, Age: one.Age})
	}
	return all
}

// Clusters implements watch.Source.
func (c clusters) Clusters() []string { return c.fleet.ClusterIDs() }

// Away implements watch.Source.
func (c clusters) Away(cluster string) bool {
	switch c.fleet.Cluster(cluster).GetState() {
	case sandboxv1.ClusterState_SUSPECT, sandboxv1.ClusterState_UNREACHABLE, sandboxv1.ClusterState_QUARANTINED:
		return true
	}
	return false
}

// Open implements watch.Source.
func (c clusters) Open(ctx context.Context, cluster string, scope watch.Scope) (watch.Feed, error) {
	ctx, cancel := context.WithTimeout(ctx, calls.Timeout)
	defer cancel()
	feed, err := c.feeds.OpenFeed(ctx, cluster, func(ctx context.Context, token string) error {
		_, err := c.workers.Call(ctx, cluster, &federationv1.Dispatch{Call: &federationv1.Dispatch_Watch{Watch: &federationv1.WatchCall{
			Token: token, Namespace: scope.Namespace, Team: scope.Team,
		}}})
		return err
	})
	if err != nil {
		return nil, err
	}
	return stamped{feed, cluster}, nil
}

// stamped is a feed whose sandboxes are checked like those in the cluster's responses.
type stamped struct {
	watch.Feed
	cluster string
}

// Next implements watch.Feed.
func (f stamped) Next() (*federationv1.SandboxChanges, error) {
	changes, err := f.Feed.Next()
	if err != nil {
		return nil, err
	}
	for _, all := range [][]*sandboxv1.Sandbox{changes.GetChanged(), changes.GetGone()} {
		for _, sandbox := range all {
			if err := calls.Stamp(sandbox, f.cluster); err != nil {
				return nil, err
			}
		}
	}
	return changes, nil
}
