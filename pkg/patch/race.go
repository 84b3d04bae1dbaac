// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"errors"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LostRace reports that a write found another object than it was made for. The API server answers a failed test of a JSON
// patch with a 422 that names no cause, and a uid that is not the object's with one that names the uid; a 422 with other
// causes is about what was written.
func LostRace(err error) bool {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return true
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Code != http.StatusUnprocessableEntity {
		return false
	}
	details := status.Status().Details
	return details == nil || !slices.ContainsFunc(details.Causes, func(cause metav1.StatusCause) bool {
		return cause.Field != "metadata.uid"
	})
}
