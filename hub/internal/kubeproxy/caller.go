// SPDX-License-Identifier: Apache-2.0

package kubeproxy

import (
	"navix.sh/atoll/pkg/access"
	"navix.sh/atoll/pkg/problem"
)

// namesOf returns a caller's user and groups in a cluster. The worker adds its prefix. A name includes its kind; because an API key may
// have the name of a user, and a team that of a group.
func namesOf(who *access.Identity) (user string, groups []string, err error) {
	switch {
	case who == nil:
		return "", nil, problem.New(problem.Forbidden, "a hub without credentials knows no callers, and so reaches no API server for them")
	case who.Key != "":
		user = "key:" + who.Key
	case who.User != "":
		user = "user:" + who.User
	default:
		return "", nil, problem.New(problem.Forbidden, "%s has no name by which a cluster could know it", who.Caller())
	}
	for _, group := range who.Groups {
		groups = append(groups, "group:"+group)
	}
	if who.Team != "" {
		groups = append(groups, "team:"+who.Team)
	}
	return user, groups, nil
}
