// SPDX-License-Identifier: Apache-2.0

package link_test

import (
	"errors"
	"strings"
	"testing"

	"navix.sh/atoll/pkg/link"
)

func TestInvitationsAreReadStrictly(t *testing.T) {
	hash := strings.Repeat("0a", 32)
	good := "atoll-join.v1." + hash + ".inv-1.s3cret_-"
	for name, c := range map[string]struct{ text, want string }{
		"good":              {good, ""},
		"with a newline":    {good + "\n", ""},
		"empty":             {" \n", "it is empty"},
		"another version":   {strings.Replace(good, ".v1.", ".v2.", 1), "does not begin with atoll-join.v1."},
		"an API key":        {"atoll_ABCDEF", "does not begin with atoll-join.v1."},
		"a part missing":    {strings.TrimSuffix(good, ".s3cret_-"), "2 parts after atoll-join.v1., want 3"},
		"a part too many":   {good + ".x", "4 parts"},
		"short hash":        {strings.Replace(good, hash, hash[2:], 1), "the hash of its CA has 62 characters"},
		"hash in capitals":  {strings.Replace(good, hash, strings.ToUpper(hash), 1), "the hash of its CA"},
		"no id":             {strings.Replace(good, "inv-1", "", 1), "its id is empty"},
		"space in the text": {strings.Replace(good, "s3cret", "s3 cret", 1), "its secret is empty or has other characters"},
		"too long":          {good + strings.Repeat("x", 512), "want at most 512"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := link.ParseInvitation(c.text)
			if c.want == "" {
				if err != nil || got.CA != hash || got.ID != "inv-1" || got.Token() != good {
					t.Fatalf("got %+v (%v)", got, err)
				}
				if strings.Contains(got.String(), "s3cret") {
					t.Errorf("its name shows the secret: %s", got)
				}
				return
			}
			if !errors.Is(err, link.ErrInvitation) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if err != nil && (strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "ABCDEF")) {
				t.Errorf("the error shows the secret: %v", err)
			}
		})
	}
}
