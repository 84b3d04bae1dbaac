// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"errors"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// steadyAfter is how long a pool's creates must fail before the failure counts as permanent. A namespace that is being set up has its
	// service account, its policies and their webhooks by then.
	steadyAfter = 30 * time.Second
	// failuresForgotten exceeds the time between two attempts of a pool that needs Pods.
	failuresForgotten = 2 * time.Minute
)

// failures records since when the API server has refused all Pods of a pool: by a policy of the namespace, a webhook, or a field. Memory is
// bounded by the pools (I10).
type failures struct{ *perPool[failing] }

type failing struct {
	subject      string
	since, until time.Time
}

// steady records a failure to create a Pod, and reports whether creates have failed for steadyAfter. The time starts again if the subject
// changes, which identifies what the pool creates Pods from.
func (f *failures) steady(pool types.NamespacedName, subject string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.clock.Now()
	known, ok := f.pools[pool]
	if !ok || known.subject != subject || now.Sub(known.until) > failuresForgotten {
		known = failing{subject: subject, since: now}
	}
	known.until = now
	f.pools[pool] = known
	return now.Sub(known.since) >= steadyAfter
}

// against reports whether the API server refuses the Pod itself, as opposed to being unreachable or busy.
func against(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch code := status.Status().Code; {
	case code == http.StatusTooManyRequests, code == http.StatusConflict, code == http.StatusUnauthorized, code == http.StatusRequestTimeout:
		return false
	case code >= 400 && code < 500:
		return true
	}
	return apierrors.IsInternalError(err) && strings.Contains(status.Status().Message, "webhook")
}
