// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/e2e/must"
)

// reviewer is an API server that responds to reviews once so many are under way as are asked for at a time.
type reviewer struct {
	client.Client
	full chan struct{} // closed then

	mu             sync.Mutex
	underWay, most int
}

// List implements client.Reader: there is nothing.
func (r *reviewer) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// Create implements client.Writer.
func (r *reviewer) Create(ctx context.Context, o client.Object, _ ...client.CreateOption) error {
	r.mu.Lock()
	r.underWay++
	if r.underWay > r.most {
		r.most = r.underWay
		if r.most == reviewsAtOnce {
			close(r.full)
		}
	}
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.underWay--
	}()
	select {
	case <-r.full:
	case <-ctx.Done():
		return ctx.Err()
	}
	review, ok := o.(*authorizationv1.SubjectAccessReview)
	if !ok {
		return errors.New("it is no review")
	}
	review.Status.Allowed = review.Spec.ResourceAttributes.Verb != "delete"
	return nil
}

// TestRightsAreAskedForAFewAtATime, and told in the order of the questions.
func TestRightsAreAskedForAFewAtATime(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	api := &reviewer{full: make(chan struct{})}
	i := inspector{Place{Namespace: "atoll-system"}, api, &Site{}}
	must.Succeed(t, i.rights(ctx))
	var want []string
	for _, q := range questions("atoll-system", nil) {
		if q.Verb == "delete" {
			want = append(want, q.String())
		}
	}
	if len(want) < 2 || !slices.Equal(i.site.Denied, want) {
		t.Errorf("denied %q, want %q", i.site.Denied, want)
	}
	if api.most != reviewsAtOnce {
		t.Errorf("%d reviews at a time, want %d", api.most, reviewsAtOnce)
	}
}

// TestWhatIsNotReadInTimeIsUnread: a look that an API server is too slow for is no complete one.
func TestWhatIsNotReadInTimeIsUnread(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	i := inspector{site: &Site{}}
	i.try(ctx, "rights", func(ctx context.Context) error { return ctx.Err() })
	if all := i.site.Unread; len(all) != 1 || !all[0].Late || !strings.HasPrefix(all[0].What, "rights: not read within ") {
		t.Errorf("unread: %+v", all)
	}
	if (&Snapshot{Sites: map[string]*Site{"east": i.site}}).Whole() {
		t.Error("the snapshot counts as whole")
	}
}
