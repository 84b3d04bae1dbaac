// SPDX-License-Identifier: Apache-2.0

package allowed

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/problem"
)

func images(patterns ...string) Lists {
	l, _ := Texts{images: strings.Join(patterns, "\n")}.Read()
	return l
}

const digest = "@sha256:7cc4b5aefd1d0cadf8d97d4350462ba51c694ebca145b08d7d41b41acc8db5aa"

// A claim names an image of the template, or one that a list allows; nothing else passes, however it is spelled.
func TestI14Images(t *testing.T) {
	other := strings.Replace(digest, "7cc4", "7cc5", 1)
	for _, tc := range []struct {
		own, list string // separated by commas
		yes, no   string // separated by spaces
	}{
		{
			own: "nginx",
			yes: "nginx nginx:latest docker.io/nginx docker.io/library/nginx:latest index.docker.io/library/nginx",
			no: "nginx:1 Nginx NGINX nginx" + digest +
				" evil/nginx docker.io.evil.example/nginx docker.io:443/library/nginx Docker.io/library/nginx",
		},
		{own: "r.example/a:1,r.example/idle:2", yes: "r.example/a:1 r.example/idle:2",
			no: "r.example/a r.example/a:2 r.example/idle:1 r.example/a/b:1"},
		{own: "r.example/a" + digest, yes: "r.example/a" + digest + " r.example/a:9" + digest, no: "r.example/a r.example/a" + other},
		// By tag.
		{list: "r.example/a:1", yes: "r.example/a:1", no: "r.example/a r.example/a:2 r.example/a:1" + digest +
			" r.example/a:1x s.example/a:1 r.example:443/a:1"},
		{list: "nginx:1", yes: "nginx:1 docker.io/library/nginx:1", no: "nginx team/nginx:1"},
		// By digest.
		{list: "r.example/a" + digest, yes: "r.example/a" + digest + " r.example/a:1" + digest,
			no: "r.example/a r.example/a" + other + " r.example/b" + digest},
		{list: "r.example/a@sha256:*", yes: "r.example/a" + digest + " r.example/a:1" + other,
			no: "r.example/a r.example/a:1 r.example/b" + digest},
		{list: "r.example/*@sha256:*", yes: "r.example/a/b" + digest, no: "r.example/a/b r.example/a:1 s.example/a" + digest},
		{list: "*@sha256:*", yes: "a" + digest + " r.example/a:1" + digest, no: "a r.example/a:1"},
		// By repository.
		{list: "r.example/a", yes: "r.example/a r.example/a:1 r.example/a" + digest, no: "r.example/ab r.example/a/b r.example/b a"},
		{list: "nginx", yes: "nginx:1 docker.io/nginx:2", no: "team/nginx r.example/nginx"},
		// By the beginning of one.
		{list: "r.example/team/*", yes: "r.example/team/a r.example/team/b/c:1",
			no: "r.example/team r.example/teams/a r.example/a r.example.evil/team/a evil.r.example/team/a"},
		{list: "r.example/team/app-*", yes: "r.example/team/app-1:x r.example/team/app-a/b", no: "r.example/team/app r.example/team/api-1"},
		{list: "r.example:5000/*", yes: "r.example:5000/a", no: "r.example/a r.example:50001/a"},
		{list: "localhost/*", yes: "localhost/a", no: "localhost:5000/a localhosts/a"},
		{list: "team/*", yes: "team/a docker.io/team/a:1", no: "teams/a r.example/team/a"},
		{list: "docker.io/*", yes: "nginx team/a docker.io/team/a", no: "r.example/a docker.io.evil/a"},
		{list: "node*", yes: "node node-slim:1", no: "team/node"},
		{list: "*", yes: "a r.example/b:1 a" + digest, no: "A ../a"},
		// What is no reference, and what only looks like one that is allowed.
		{
			own: "nginx", list: "r.example/*,team/*",
			no: "r\u2024example/a r.exam\u0440le/a ng\u0456nx nginx\u200b r.example/A r.example/../s.example/a r.example//a r.example/a: " +
				"r.example/a@ @r.example/a " +
				"r.example/a@sha256:7cc4 " + strings.TrimPrefix(digest, "@sha256:") +
				" R.EXAMPLE/a Team/a r.example@s.example/a r.example/a?b r.example\\/a http://r.example/a " +
				"\u212a.example/a r.example/" + strings.Repeat("a", 600),
		},
		{no: "a r.example/a:1"},
	} {
		own := strings.Split(tc.own, ",")
		lists := images(strings.Split(tc.list, ",")...)
		for _, image := range strings.Fields(tc.yes) {
			if err := lists.Image(image, own...); err != nil {
				t.Errorf("own %s, list %s: %q: %v", tc.own, tc.list, image, err)
			}
		}
		for _, image := range strings.Fields(tc.no) {
			if err := lists.Image(image, own...); err == nil || err.Reason != problem.Forbidden && err.Reason != problem.Invalid {
				t.Errorf("own %s, list %s: %q passes: %v", tc.own, tc.list, image, err)
			}
		}
	}
}

// A refusal names the image and what is allowed, and stays short.
func TestRefusalsSayWhatIsAllowed(t *testing.T) {
	err := images("r.example/team/*").Image("evil:1", "nginx:1", "idle:1", "nginx:1")
	const want = `FORBIDDEN: image: "evil:1" is not allowed here, want nginx:1, idle:1, r.example/team/*; ` +
		`the annotation agentbox.navix.sh/allowed-images of the Env or of its template allows others`
	if err == nil || err.Error() != want {
		t.Errorf("refused with %v, want %s", err, want)
	}
	var many []string
	for i := range maxImages {
		many = append(many, fmt.Sprintf("r.example/%s/%d", strings.Repeat("a", 200), i))
	}
	if err := images(many...).Image("evil:1", "nginx"); err == nil || len(err.Message) > 8<<10 ||
		!strings.Contains(err.Message, "and 45 more") {
		t.Errorf("refused with %v", err)
	}
}

// TestPatterns: what is no pattern is refused with its line, its value, and what is valid.
func TestPatterns(t *testing.T) {
	for _, wrong := range []string{
		"A", "r.example/A", "R.example/a", "R.example/*", "**", "*a", "r.*/a", "*.example/a", "r.example/*/a", "r.example*", "r.example:50*",
		"localhost*",
		"r.example/a:*", "r.example/a:1*", "r.example/a@sha256:7c*", "r.example/a:1@sha256:*", "r.example/a" + digest + "@sha256:*",
		"r.example/a@sha256:1",
		"r.example/a@*", "a b", "http://r.example/a", "r.example/", "/a", "r.example//*", "r\u2024example/a", "r.exampl\u0435/*", "a@sha512:*",
		strings.Repeat("a", 513),
	} {
		l, faults := TextsOf(map[string]string{v1alpha1.AllowedImagesAnnotationKey: "nginx\n\n" + wrong}).Read()
		if len(faults) != 1 || faults[0].Field != "metadata.annotations[agentbox.navix.sh/allowed-images] line 3" ||
			!strings.HasPrefix(wrong, strings.TrimSuffix(faults[0].Value, "…")) || faults[0].Valid == "" {
			t.Errorf("%q: %v", wrong, faults)
		}
		if err := l.Image("nginx"); err == nil || !strings.Contains(err.Message, "line 3") {
			t.Errorf("%q: a list with a fault allows: %v", wrong, err)
		}
	}
}

// Lists are bounded, and one with a fault allows nothing, while the other goes on.
func TestFaultyListsAllowNothing(t *testing.T) {
	many := strings.Repeat("nginx\n", maxImages+1)
	for name, tc := range map[string]struct {
		images, containers string
		field, valid       string
	}{
		"many patterns":    {many, "side", "allowed-images] line 65", "at most 64 lines"},
		"many bytes":       {strings.Repeat("\n", 64<<10), "side", "allowed-images]", "at most 64 lines of 512 characters"},
		"many containers":  {"nginx", strings.Repeat("a\n", maxContainers+1), "allowed-containers] line 17", "at most 16 lines"},
		"no container":     {"nginx", "a\nB_", "allowed-containers] line 2", "the name of a container"},
		"a long container": {"nginx", strings.Repeat("a", 64), "allowed-containers] line 1", "at most 63 characters"},
	} {
		l, faults := Texts{tc.images, tc.containers}.Read()
		if len(faults) != 1 || !strings.HasSuffix(faults[0].Field, tc.field) || !strings.HasPrefix(faults[0].Valid, tc.valid) {
			t.Errorf("%s: %v", name, faults)
		}
		if faulty := strings.Contains(tc.field, "images"); (l.Image("nginx") != nil) != faulty {
			t.Errorf("%s: images %v", name, l.images)
		} else if _, err := l.Container("side", "main"); (err == nil) != faulty {
			t.Errorf("%s: containers %v", name, l.containers)
		}
	}
	if l, faults := (Texts{" \n nginx:1 \r\n\n", "\n a \n"}).Read(); len(faults) > 0 || l.Image("nginx:1") != nil {
		t.Errorf("with spaces: %v", faults)
	}
}

// Callers reach the sandbox's own container, and those that a list names.
func TestI14Containers(t *testing.T) {
	env, _ := Texts{containers: "proxy"}.Read()
	template, _ := Texts{containers: "logs"}.Read()
	both := env.And(template)
	for asked, want := range map[string]string{"": "main", "main": "main", "proxy": "proxy", "logs": "logs"} {
		if got, err := both.Container(asked, "main"); err != nil || got != want {
			t.Errorf("%q: %q, %v", asked, got, err)
		}
	}
	for _, asked := range []string{"side", "Main", "main ", "prox", "\u0440roxy"} {
		_, err := both.Container(asked, "main")
		if err == nil || err.Reason != problem.Forbidden || !strings.Contains(err.Message, "want main, proxy, logs; ") {
			t.Errorf("%q: %v", asked, err)
		}
	}
	if _, err := (Lists{}).Container("side", "main"); err == nil || !strings.Contains(err.Message,
		`container: "side" is not open to callers, want main; the annotation`) {
		t.Errorf("without a list: %v", err)
	}
}

func TestI14PortsOfTheNode(t *testing.T) {
	if err := Port(&corev1.PodSpec{}); err != nil {
		t.Error(err)
	}
	if err := Port(&corev1.PodSpec{HostNetwork: true}); err == nil || err.Reason != problem.Forbidden {
		t.Errorf("a Pod on its node's network: %v", err)
	}
}

// Whatever image and pattern are, a decision is made, and what a beginning allows begins so.
func FuzzImage(f *testing.F) {
	for _, seed := range [][2]string{{"r.example/team/*", "r.example/team/a:1"}, {"*@sha256:*", "a" + digest},
		{"nginx", "docker.io/library/nginx"}, {"docker.io/*", "x"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, list, image string) {
		if len(list) > 2<<10 || len(image) > 2<<10 {
			return
		}
		l := images(list)
		if err := l.Image(image); err != nil {
			return
		}
		for _, r := range image {
			if r > 0x7f || r <= ' ' {
				t.Fatalf("list %q allows %q", list, image)
			}
		}
		if len(l.images) == 1 && l.images[0].begins && strings.Count(l.images[0].host, ".") > 0 && l.images[0].host != dockerHub &&
			!strings.HasPrefix(image, l.images[0].host+"/"+l.images[0].path) {
			t.Errorf("list %q allows %q", list, image)
		}
	})
}
