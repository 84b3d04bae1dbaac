// SPDX-License-Identifier: Apache-2.0

package workertest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func (n name) group() schema.GroupResource {
	return schema.GroupResource{Group: n.kind.gvk.Group, Resource: n.kind.resource}
}

func notFound(n name) error { return apierrors.NewNotFound(n.group(), n.Name) }

func alreadyExists(n name) error { return apierrors.NewAlreadyExists(n.group(), n.Name) }

func conflict(n name, why string) error {
	return apierrors.NewConflict(n.group(), n.Name, errors.New(why))
}

// testFailed returns the API server's response to a JSON patch whose test fails: 422 without causes.
func testFailed(err error) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
		Message: fmt.Sprintf("the server rejected our request due to an error in our request: %s", err),
	}}
}

// respond builds the HTTP response for an object or an error.
func respond(r *http.Request, now time.Time, object runtime.Object, err error) (*http.Response, error) {
	code, body := http.StatusOK, any(object)
	if err != nil {
		var status apierrors.APIStatus
		if !errors.As(err, &status) {
			status = apierrors.NewInternalError(err)
		}
		s := status.Status()
		s.Kind, s.APIVersion = "Status", "v1"
		code, body = int(s.Code), &s
	}
	data, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encoding a response: %w", err)
	}
	header := http.Header{"Content-Type": {"application/json"}, "Date": {now.UTC().Format(http.TimeFormat)}}
	if code == http.StatusTooManyRequests {
		header.Set("Retry-After", "1")
	}
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/2.0", ProtoMajor: 2, Request: r,
		Header:        header,
		Body:          io.NopCloser(bytes.NewReader(data)),
		ContentLength: int64(len(data)),
	}, nil
}
