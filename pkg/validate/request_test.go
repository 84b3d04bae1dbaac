// SPDX-License-Identifier: Apache-2.0

package validate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/validate"
)

type create = sandboxv1.CreateSandboxRequest

func TestCreateRefuses(t *testing.T) {
	many := map[string]string{}
	for i := range 65 {
		many[fmt.Sprint("k", i)] = "v"
	}
	for name, tc := range map[string]struct {
		change func(*create)
		field  string // of the error
	}{
		"no env":                  {func(r *create) { r.Env = "" }, "env"},
		"bad env":                 {func(r *create) { r.Env = "A_b" }, "env"},
		"bad namespace":           {func(r *create) { r.Namespace = "a.b" }, "namespace"},
		"image with a space":      {func(r *create) { r.Image = "a b" }, "image"},
		"image in capitals":       {func(r *create) { r.Image = "reg.example/App" }, "image"},
		"image without name":      {func(r *create) { r.Image = ":v1" }, "image"},
		"image with short digest": {func(r *create) { r.Image = "app@sha256:abc" }, "image"},
		"long image":              {func(r *create) { r.Image = strings.Repeat("a", 513) }, "image"},
		"multiplier":              {func(r *create) { r.Multiplier = -1 }, "multiplier"},
		"instance type":           {func(r *create) { r.InstanceType = "a\n" }, "instanceType"},
		"scaling group":           {func(r *create) { r.ScalingGroup = "\x00" }, "scalingGroup"},
		"cluster":                 {func(r *create) { r.Clusters = []string{"ok", "Not-ok"} }, "clusters[1]"},
		"cluster twice":           {func(r *create) { r.Clusters = []string{"a", "b", "a"} }, "clusters[2]"},
		"cluster of 31":           {func(r *create) { r.Clusters = []string{strings.Repeat("a", 31)} }, "clusters[0]"},
		"requireClusters":         {func(r *create) { r.RequireClusters = true }, "requireClusters"},
		"long claim key":          {func(r *create) { r.ClaimKey = strings.Repeat("k", 129) }, "claimKey"},
		"claim key in UTF-8":      {func(r *create) { r.ClaimKey = "schlüssel" }, "claimKey"},
		"claim key with newline":  {func(r *create) { r.ClaimKey = "a\nb" }, "claimKey"},
		"wait NONE without key":   {func(r *create) { r.Wait = sandboxv1.CreateSandboxRequest_NONE }, "wait"},
		"wait of a newer API":     {func(r *create) { r.Wait = 9 }, "wait"},
		"team with NUL":           {func(r *create) { r.Team = "a\x00b" }, "team"},
		"long user":               {func(r *create) { r.User = strings.Repeat("u", 129) }, "user"},
		"reserved label": {func(r *create) { r.Labels = map[string]string{"scheduling.navix.sh/user": "x"} },
			"labels[scheduling.navix.sh/user]"},
		"label with a prefix": {func(r *create) { r.Labels = map[string]string{"app.kubernetes.io/name": "x"} },
			"labels[app.kubernetes.io/name]"},
		"label with our prefix":     {func(r *create) { r.Labels = map[string]string{"tenant.navix.sh/y": "x"} }, "labels[tenant.navix.sh/y]"},
		"label key":                 {func(r *create) { r.Labels = map[string]string{"a b": "x"} }, "labels[a b]"},
		"label value":               {func(r *create) { r.Labels = map[string]string{"a": "x y"} }, "labels[a]"},
		"many labels":               {func(r *create) { r.Labels = many }, "labels"},
		"metadata without key":      {func(r *create) { r.Metadata = map[string]string{"": "x"} }, "metadata"},
		"much metadata":             {func(r *create) { r.Metadata = map[string]string{"a": strings.Repeat("x", 32<<10)} }, "metadata"},
		"zero startup timeout":      {func(r *create) { r.StartupTimeout = durationpb.New(0) }, "startupTimeout"},
		"endless startup timeout":   {func(r *create) { r.StartupTimeout = &durationpb.Duration{Seconds: 1 << 60} }, "startupTimeout"},
		"negative idle timeout":     {func(r *create) { r.IdleTimeout = durationpb.New(-1) }, "idleTimeout"},
		"endless idle timeout":      {func(r *create) { r.IdleTimeout = &durationpb.Duration{Seconds: 1 << 60} }, "idleTimeout"},
		"a life of over a year":     {func(r *create) { r.MaxLifetime = durationpb.New(validate.MaxTimeout + 1) }, "maxLifetime"},
		"negative first activity":   {func(r *create) { r.FirstActivityTimeout = durationpb.New(-1) }, "firstActivityTimeout"},
		"first activity of a key":   {func(r *create) { r.FirstActivityTimeout, r.ClaimKey = durationpb.New(1), "k" }, "firstActivityTimeout"},
		"a variable's name":         {func(r *create) { r.EnvVars = map[string]string{"A=B": "secret"} }, "envVars"},
		"a variable with NUL":       {func(r *create) { r.EnvVars = map[string]string{"A": "secret\x00"} }, "envVars[A]"},
		"large variables":           {func(r *create) { r.EnvVars = map[string]string{"A": strings.Repeat("s", 64<<10)} }, "envVars"},
		"a relative workdir":        {func(r *create) { r.Workdir = "work" }, "workdir"},
		"a workdir with NUL":        {func(r *create) { r.Workdir = "/a\x00" }, "workdir"},
		"an account with a colon":   {func(r *create) { r.ExecUser = "a:b" }, "execUser"},
		"a file without a path":     {func(r *create) { r.Files = files(1, ""); r.Files[0].Path = "" }, "files[0].path"},
		"a file's path is long":     {func(r *create) { r.Files = files(1, ""); r.Files[0].Path = strings.Repeat("p", 4097) }, "files[0].path"},
		"a folder among files":      {func(r *create) { r.Files = files(1, ""); r.Files[0].Path = "a/" }, "files[0].path"},
		"a file's mode is decimal":  {func(r *create) { r.Files = files(1, ""); r.Files[0].Mode = "0888" }, "files[0].mode"},
		"a file with a set-uid bit": {func(r *create) { r.Files = files(1, ""); r.Files[0].Mode = "4755" }, "files[0].mode"},
		"large files":               {func(r *create) { r.Files = files(32, strings.Repeat("s", 32<<10+1)) }, "files"},
		"many files":                {func(r *create) { r.Files = files(33, "") }, "files"},
		"files of a sandbox that may not run": {func(r *create) {
			r.Files, r.Wait = files(1, ""), sandboxv1.CreateSandboxRequest_ASSIGNED
		}, "wait"},
		"many variables": {func(r *create) { r.EnvVars = variables(1001) }, "envVars"},
		"variables before it runs": {func(r *create) {
			r.EnvVars, r.Wait = variables(1), sandboxv1.CreateSandboxRequest_ASSIGNED
		}, "wait"},
		"an empty hook": {func(r *create) { r.PostStartHooks = []*structpb.Struct{{}} }, "postStartHooks[0]"},
	} {
		r := &create{Namespace: "default", Env: "demo"}
		tc.change(r)
		err := validate.Create(r).Err()
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		e := problem.FromError(err)
		if e.Reason != problem.Invalid || len(e.Fields) != 1 || e.Fields[0].Field != tc.field || e.Fields[0].Valid == "" ||
			strings.Contains(err.Error()+fmt.Sprint(e.Fields), "secret") {
			t.Errorf("%s: %v with fields %+v, want %s", name, err, e.Fields, tc.field)
		}
	}
}

func TestReferencesToSecrets(t *testing.T) {
	ref := func(env, name, key string) *sandboxv1.SandboxSecret {
		return &sandboxv1.SandboxSecret{Env: env, Name: name, Key: key}
	}
	refs := func(n int) (out []*sandboxv1.SandboxSecret) {
		for i := range n {
			out = append(out, ref(fmt.Sprint("S", i), "creds", "token"))
		}
		return out
	}
	good := &create{Namespace: "default", Env: "demo", EnvVars: variables(1), Secrets: append(refs(31), ref("a-b.c", "a.b-c", ".dockercfg_A"))}
	if err := validate.Create(good).Err(); err != nil {
		t.Errorf("good ones: %v", err)
	}
	for field, secrets := range map[string][]*sandboxv1.SandboxSecret{
		"secrets": refs(33), "secrets[0].env": {ref("A=B", "creds", "token")}, "secrets[1].env": {ref("A", "creds", "token"), ref("A", "x", "y")},
		"secrets[0].name": {ref("A", "other/creds", "token")}, "secrets[0].key": {ref("A", "creds", "")}, "secrets[2].env": append(refs(2),
			ref("V0", "creds", "token")),
	} {
		e := problem.FromError(validate.Create(&create{Namespace: "default", Env: "demo", EnvVars: variables(1), Secrets: secrets}).Err())
		if e == nil || e.Reason != problem.Invalid || len(e.Fields) != 1 || e.Fields[0].Field != field || e.Fields[0].Valid == "" {
			t.Errorf("%s: %v", field, e)
		}
	}
	early := &create{Namespace: "default", Env: "demo", Wait: sandboxv1.CreateSandboxRequest_ASSIGNED, Secrets: refs(1)}
	if e := problem.FromError(validate.Create(early).Err()); e == nil || len(e.Fields) != 1 || e.Fields[0].Field != "wait" {
		t.Errorf("before it runs: %v", e)
	}
}

func files(n int, content string) (out []*sandboxv1.SandboxFile) {
	for i := range n {
		out = append(out, &sandboxv1.SandboxFile{Path: fmt.Sprintf("f%d", i), Content: []byte(content), Mode: "0600"})
	}
	return out
}

func variables(n int) map[string]string {
	all := map[string]string{}
	for i := range n {
		all[fmt.Sprint("V", i)] = ""
	}
	return all
}

func TestCreateAccepts(t *testing.T) {
	for _, image := range []string{
		"app", "app:v1", "library/app:v1", "registry.example/team/app", "registry.example:5000/a/b_c/d__e/f-g.h:V1.2-x_y",
		"localhost:5000/app@sha256:" + strings.Repeat("0f", 32), "app:v1@sha256:" + strings.Repeat("0f", 32), "ghcr.io/a/b.c",
	} {
		r := &create{Namespace: "default", Env: "demo.v1", Image: image, FirstActivityTimeout: durationpb.New(1), IdleTimeout: durationpb.New(0),
			MaxLifetime: durationpb.New(validate.MaxTimeout), Labels: map[string]string{"app.v1_x": "", "b": "c"},
			EnvVars: variables(1000), Workdir: "/work", ExecUser: "agent", Files: append(files(31, strings.Repeat("s", 32<<10)),
				&sandboxv1.SandboxFile{Path: "/bin/tool", Mode: "755"})}
		if err := validate.Create(r).Err(); err != nil {
			t.Errorf("%s: %v", image, err)
		}
	}
}

func TestEveryFaultIsNamedAtOnce(t *testing.T) {
	err := validate.Create(&create{Namespace: "A", Env: "B", Image: "C D", ClaimKey: "\x01"}).Err()
	e := problem.FromError(err)
	var fields []string
	for _, f := range e.Fields {
		fields = append(fields, f.Field)
	}
	slices.Sort(fields)
	if got := strings.Join(fields, " "); got != "claimKey env image namespace" {
		t.Errorf("named %s", got)
	}
}

func TestClusterOf(t *testing.T) {
	for id, want := range map[string]string{
		"01arz3ndektsv4rrffq69g5fav-east":      "east",
		"01arz3ndektsv4rrffq69g5fav-eu-west-1": "eu-west-1",
		"01ARZ3NDEKTSV4RRFFQ69G5FAV-east":      "",
		"01arz3ndektsv4rrffq69g5fau-east":      "", // no u in a ULID
		"01arz3ndektsv4rrffq69g5fav-":          "",
		"01arz3ndektsv4rrffq69g5fav-East":      "",
		"01arz3ndektsv4rrffq69g5fa-east":       "",
		"":                                     "",
	} {
		if got, ok := validate.ClusterOf(id); got != want || ok != (want != "") {
			t.Errorf("%q: %q %t", id, got, ok)
		}
	}
}

func TestUpdateRefuses(t *testing.T) {
	const id = "01hzzzzzzzzzzzzzzzzzzz0001-east"
	for name, tc := range map[string]struct {
		request *sandboxv1.UpdateSandboxRequest
		field   string
	}{
		"nothing":             {&sandboxv1.UpdateSandboxRequest{Id: id}, "idleTimeout"},
		"no sandbox":          {&sandboxv1.UpdateSandboxRequest{Id: "x", IdleTimeout: durationpb.New(0)}, "id"},
		"negative":            {&sandboxv1.UpdateSandboxRequest{Id: id, IdleTimeout: durationpb.New(-1)}, "idleTimeout"},
		"more than a year":    {&sandboxv1.UpdateSandboxRequest{Id: id, MaxLifetime: durationpb.New(validate.MaxTimeout + 1)}, "maxLifetime"},
		"not even a duration": {&sandboxv1.UpdateSandboxRequest{Id: id, MaxLifetime: &durationpb.Duration{Seconds: 1, Nanos: -1}}, "maxLifetime"},
	} {
		e := problem.FromError(validate.Update(tc.request).Err())
		if e.Reason != problem.Invalid || len(e.Fields) != 1 || e.Fields[0].Field != tc.field || e.Fields[0].Valid == "" {
			t.Errorf("%s: %v, want %s", name, e, tc.field)
		}
	}
}
