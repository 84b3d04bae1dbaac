// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/worker/internal/allowed"
	"navix.sh/atoll/worker/internal/disposition"
	"navix.sh/atoll/worker/internal/inventory"
)

func TestResultOfRead(t *testing.T) {
	pod := func(uid types.UID, holds string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			UID: uid, Annotations: map[string]string{v1alpha1.SandboxIDAnnotationKey: holds},
			Labels: map[string]string{v1alpha1.SandboxIDLabelKey: holds},
		}}
	}
	for name, tc := range map[string]struct {
		live *corev1.Pod
		err  error
		want inventory.Result
	}{
		"the claim itself":         {pod("a", "mine"), nil, inventory.Written},
		"another claim":            {pod("a", "another"), nil, inventory.Lost},
		"no claim":                 {pod("a", ""), nil, inventory.Lost},
		"another Pod of that name": {pod("b", "mine"), nil, inventory.NoPod},
		"no Pod":                   {nil, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "p"), inventory.NoPod},
		"nothing in time":          {nil, errors.New("EOF"), inventory.Unclear},
		"nothing, but another uid": {pod("b", ""), errors.New("EOF"), inventory.Unclear},
	} {
		if got := resultOfRead("mine", pod("a", ""), tc.live, tc.err); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

func TestAdmit(t *testing.T) {
	for name, tc := range map[string]struct {
		asking asking
		want   admission
	}{
		"a Pod is idle":                     {asking{left: 1, idle: true, capacity: 3}, takesPod},
		"a Pod is idle, no queue":           {asking{left: 1, idle: true, noQueue: true}, takesPod},
		"none is":                           {asking{left: 1, capacity: 3}, waits},
		"the last place":                    {asking{left: 1, waiting: 2, capacity: 3, own: 2, most: 2}, waits},
		"none is, no queue":                 {asking{left: 1, capacity: 3, noQueue: true}, noneIdle},
		"none is any more, no queue":        {asking{left: 1, capacity: 3, noQueue: true, again: true}, noneIdle},
		"full of its own claims":            {asking{left: 1, waiting: 3, capacity: 3, own: 3, most: 3}, queueFull},
		"full of another's":                 {asking{left: 1, waiting: 3, capacity: 3, most: 3}, displaces},
		"full, one less than another":       {asking{left: 1, waiting: 3, capacity: 3, own: 1, most: 2}, queueFull},
		"full, two less than another":       {asking{left: 1, waiting: 4, capacity: 4, own: 1, most: 3}, displaces},
		"full, one place each":              {asking{left: 1, waiting: 3, capacity: 3, most: 1}, queueFull},
		"full of claims that lost Pods":     {asking{left: 1, waiting: 3, capacity: 3}, queueFull},
		"full, lost its Pod":                {asking{left: 1, waiting: 3, capacity: 3, own: 3, most: 3, again: true}, waits},
		"a place is left for a long wait":   {asking{left: 1, waiting: 8191, capacity: 8192, own: 8191, most: 8191}, waits},
		"its deadline is now":               {asking{capacity: 3}, pastDeadline},
		"its deadline has passed":           {asking{left: -1, idle: true, capacity: 3}, pastDeadline},
		"lost its Pod, and time is up":      {asking{capacity: 3, again: true}, pastDeadline},
		"the pool is being removed":         {asking{left: 1, idle: true, closing: true, capacity: 3}, poolRemoved},
		"no Pod can come in time":           {asking{left: 5, capacity: 3, empty: true, saturated: 5}, hopeless},
		"one may come in time":              {asking{left: 5, capacity: 3, empty: true, saturated: 4}, waits},
		"saturated, with Pods":              {asking{left: 5, capacity: 3, saturated: 9}, waits},
		"no Pods, not saturated":            {asking{left: 5, capacity: 3, empty: true}, waits},
		"canceled":                          {asking{left: 1, idle: true, canceled: true, capacity: 3}, canceled},
		"canceled, and the pool is removed": {asking{canceled: true, closing: true}, canceled},
	} {
		if got := admit(&tc.asking); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// I2: what a claim of attempt 3 finds.
// allowing returns the lists of a template that opens an image and a container to callers.
func allowing(t *testing.T) allowed.Lists {
	t.Helper()
	lists, faults := allowed.TextsOf(map[string]string{
		v1alpha1.AllowedImagesAnnotationKey: "registry.example/open:v1", v1alpha1.AllowedContainersAnnotationKey: "sidecar",
	}).Read()
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return lists
}

func poolSpec() *v1alpha1.SandboxPoolSpec {
	spec := &v1alpha1.SandboxPoolSpec{}
	spec.IdleImage = "registry.example/idle:v1"
	spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: "registry.example/main:v1"}, {Name: "sidecar"}, {Name: "closed"}}
	return spec
}

func TestImageOf(t *testing.T) {
	const refused, fault = federationv1.Disposition_REFUSED, federationv1.Disposition_DONE
	lists := allowing(t)
	for asked, want := range map[string]struct {
		image  string
		failed bool
		as     federationv1.Disposition
	}{
		"":                          {image: "registry.example/main:v1"},
		"registry.example/main:v1":  {image: "registry.example/main:v1"},
		"registry.example/idle:v1":  {image: "registry.example/idle:v1"},
		"registry.example/open:v1":  {image: "registry.example/open:v1"},
		"registry.example/other:v1": {failed: true, as: refused}, // another pool may allow it
		"no:image:at all":           {failed: true, as: fault},   // it is invalid everywhere
	} {
		image, err := imageOf(asked, poolSpec(), lists)
		if image != want.image || (err != nil) != want.failed || want.failed && disposition.Of(err) != want.as {
			t.Errorf("%q: %q, %v (%s), want %+v", asked, image, err, disposition.Of(err), want)
		}
	}
}

func TestContainersOf(t *testing.T) {
	lists := allowing(t)
	for hooks, want := range map[string]string{
		`{}`: "",
		`{"postStartHooks": [{"exec": {"command": ["true"]}}, {"exec": {"command": ["true"], "container": "main"}}]}`: "",
		`{"postStartHooks": [{"exec": {"command": ["true"], "container": "sidecar"}}]}`:                               "",
		`{"postStartHooks": [{"http": {"port": 80}}]}`:                                                                "",
		`{"postStartHooks": [{"exec": {"command": ["true"]}}, {"exec": {"command": ["true"], "container": "closed"}}]}`: "" +
			`postStartHooks[1].exec.container: "closed" is not open to callers`,
	} {
		request := &sandboxv1.CreateSandboxRequest{}
		must.Succeed(t, protojson.Unmarshal([]byte(hooks), request))
		switch err := containersOf(request, poolSpec(), lists); {
		case (err != nil) != (want != ""):
			t.Errorf("%s: %v, want %q", hooks, err, want)
		case err != nil && (!strings.Contains(err.Error(), want) || !disposition.Refused(err)):
			t.Errorf("%s: %v (%s), want a refusal with %q", hooks, err, disposition.Of(err), want)
		}
	}
}

func TestDecideKey(t *testing.T) {
	for name, tc := range map[string]struct {
		known known
		want  keyAction
	}{
		"nothing":                             {known{}, startAnew},
		"earlier attempt waits":               {known{pending: 2}, startAnew},
		"earlier attempt holds a Pod":         {known{held: 2}, startAnew},
		"earlier attempt has ended":           {known{ended: 2}, startAnew},
		"earlier attempt was refused":         {known{refused: 2}, startAnew},
		"waits":                               {known{pending: 3}, joinClaim},
		"waits, earlier one refused":          {known{pending: 3, refused: 2}, joinClaim},
		"holds a Pod":                         {known{held: 3}, returnHolder},
		"holds a Pod, another still written":  {known{held: 3, pending: 3}, returnHolder},
		"has ended":                           {known{ended: 3}, returnRecord},
		"was canceled and has ended":          {known{ended: 3, refused: 3}, returnRecord},
		"was refused":                         {known{refused: 3}, refuseAgain},
		"a later attempt was canceled":        {known{refused: 4}, refuseAgain},
		"was canceled while its Pod is there": {known{refused: 3, held: 3}, refuseAgain},
		"later attempt waits":                 {known{pending: 4}, outdated},
		"later attempt holds a Pod":           {known{held: 4, ended: 2}, outdated},
		"later attempt has ended":             {known{ended: 4}, outdated},
	} {
		if got := decideKey(tc.known, 3); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}
