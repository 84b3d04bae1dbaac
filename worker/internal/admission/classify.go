// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"errors"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// prefix matches the start of such messages of an API server. It contains the Pod's name, which would make every message different.
var prefix = regexp.MustCompile(`^(?:pods "[^"]*" is forbidden: )`)

// limitRange matches a LimitRange's message about an object that violates it. The message does not name the LimitRange.
var limitRange = regexp.MustCompile(`(?:(?:minimum|maximum) \S+ usage per (?:Pod|Container) is )` +
	`|(?: max limit to request ratio per (?:Pod|Container) is )`)

// causes maps the start of a ResourceQuota's message to a reason.
var causes = []struct {
	begins string
	reason Reason
}{
	{"exceeded quota: ", QuotaExceeded},
	{"insufficient quota to consume: ", QuotaExceeded},
	// The quota was created a moment ago, and its controller has not counted yet.
	{"status unknown for quota: ", QuotaExceeded},
	// The Pod does not request a resource that is limited.
	{"failed quota: ", InvalidSpec},
	{"insufficient quota to match these scopes: ", InvalidSpec},
}

// OfPodCreation reports whether an API server's response to the creation of a Pod is a refusal by a ResourceQuota or a LimitRange of its
// namespace, and converts it to a Verdict. Other errors, such as a missing permission, are no such refusals.
func OfPodCreation(err error) (Verdict, bool) {
	var status apierrors.APIStatus
	if !apierrors.IsForbidden(err) || !errors.As(err, &status) {
		return Verdict{}, false
	}
	message := prefix.ReplaceAllString(status.Status().Message, "")
	for _, cause := range causes {
		if strings.HasPrefix(message, cause.begins) {
			return Refuse(0, cause.reason, "ResourceQuota: "+message, 0), true
		}
	}
	if limitRange.MatchString(message) {
		return Refuse(0, InvalidSpec, "LimitRange: "+message, 0), true
	}
	return Verdict{}, false
}
