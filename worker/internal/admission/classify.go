// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"errors"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// prefix is what an API server puts before each such message. The Pod's name in it makes every message another.
var prefix = regexp.MustCompile(`^(?:pods "[^"]*" is forbidden: )`)

// limitRange is what a LimitRange says of an object beyond it. It never says that it is one.
var limitRange = regexp.MustCompile(`(?:(?:minimum|maximum) \S+ usage per (?:Pod|Container) is )|(?: max limit to request ratio per (?:Pod|Container) is )`)

// causes of a ResourceQuota, by the beginning of what it says.
var causes = []struct {
	begins string
	reason Reason
}{
	{"exceeded quota: ", QuotaExceeded},
	{"insufficient quota to consume: ", QuotaExceeded},
	// Made a moment ago: its controller has not counted yet.
	{"status unknown for quota: ", QuotaExceeded},
	// A Pod that does not say how much it needs of what is limited.
	{"failed quota: ", InvalidSpec},
	{"insufficient quota to match these scopes: ", InvalidSpec},
}

// OfPodCreation tells whether an API server's answer to the creation of a Pod is the refusal of a ResourceQuota or a
// LimitRange of its namespace, and makes a Verdict of it. Anything else is an error like any other: a right that is
// missing, say, is no limit that anybody set.
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
