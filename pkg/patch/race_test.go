// SPDX-License-Identifier: Apache-2.0

package patch_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"navix.sh/atoll/pkg/patch"
)

func TestLostRace(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	invalid := func(fields ...string) error {
		s := metav1.Status{Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Details: &metav1.StatusDetails{}}
		for _, field := range fields {
			s.Details.Causes = append(s.Details.Causes, metav1.StatusCause{Field: field})
		}
		return &apierrors.StatusError{ErrStatus: s}
	}
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{errors.New("connection refused"), false},
		{apierrors.NewNotFound(pods, "p"), true},
		{fmt.Errorf("patching: %w", apierrors.NewConflict(pods, "p", nil)), true},
		{&apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid}}, true},
		{invalid(), true},
		{fmt.Errorf("patching: %w", invalid("metadata.uid")), true},
		{invalid("spec.replicas"), false},
		{invalid("metadata.uid", "spec.replicas"), false},
		{apierrors.NewForbidden(pods, "p", nil), false},
	} {
		if got := patch.LostRace(c.err); got != c.want {
			t.Errorf("%v is a lost race: %t", c.err, got)
		}
	}
}
