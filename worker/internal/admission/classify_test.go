// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestOfPodCreation has messages of API servers. The pool's tests check on a real one that they still hold.
func TestOfPodCreation(t *testing.T) {
	forbidden := func(text string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p-abc", errors.New(text))
	}
	for _, c := range []struct {
		err     error
		reason  Reason
		message string
	}{
		{forbidden("exceeded quota: q, requested: pods=1, used: pods=3, limited: pods=3"), QuotaExceeded,
			"ResourceQuota: exceeded quota: q, requested: pods=1, used: pods=3, limited: pods=3"},
		{fmt.Errorf("creating: %w", forbidden("exceeded quota: q, requested: pods=1")), QuotaExceeded,
			"ResourceQuota: exceeded quota: q, requested: pods=1"},
		{forbidden("status unknown for quota: q, resources: pods"), QuotaExceeded, "ResourceQuota: status unknown for quota: q, resources: pods"},
		{forbidden("failed quota: q: must specify limits.cpu for: main"), InvalidSpec,
			"ResourceQuota: failed quota: q: must specify limits.cpu for: main"},
		{forbidden("insufficient quota to match these scopes: [{PriorityClass In [x]}]"), InvalidSpec,
			"ResourceQuota: insufficient quota to match these scopes: [{PriorityClass In [x]}]"},
		{forbidden("maximum cpu usage per Container is 1, but limit is 2"), InvalidSpec,
			"LimitRange: maximum cpu usage per Container is 1, but limit is 2"},
		{forbidden("[minimum memory usage per Pod is 1Gi, but request is 1Mi, maximum cpu usage per Pod is 1.  No limit is specified]"),
			InvalidSpec,
			"LimitRange: [minimum memory usage per Pod is 1Gi, but request is 1Mi, maximum cpu usage per Pod is 1.  No limit is specified]"},
		{forbidden("cpu max limit to request ratio per Container is 2, but provided ratio is 4.000000"), InvalidSpec,
			"LimitRange: cpu max limit to request ratio per Container is 2, but provided ratio is 4.000000"},
		{forbidden(`violates PodSecurity "restricted:latest": privileged`), "", ""},
		{forbidden("unable to create new content in namespace x because it is being terminated"), "", ""},
		{apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New(`User "u" cannot create resource "pods"`)), "", ""},
		{apierrors.NewInternalError(errors.New("exceeded quota: ")), "", ""},
		{errors.New("exceeded quota: "), "", ""},
		{nil, "", ""},
	} {
		v, ok := OfPodCreation(c.err)
		if ok != (c.reason != "") || v.Reason != c.reason || v.Message != c.message || v.Replicas != 0 {
			t.Errorf("%v:\n got %t %+v\nwant %q %q", c.err, ok, v, c.reason, c.message)
		}
	}
}
