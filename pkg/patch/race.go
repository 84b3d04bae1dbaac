// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"errors"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LostRace reports whether a write failed because the object had changed. If a test of a JSON patch fails, the API server returns a 422
// without a cause; if the uid differs, a 422 that names the uid. A 422 with other causes is about the written content.
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
