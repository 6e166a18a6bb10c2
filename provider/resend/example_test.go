package resend_test

import (
	"context"
	"fmt"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/provider/postmark"
	"github.com/seed-8098fbb7/dispatch/provider/resend"
)

// A mail that neither of the route's providers can carry is refused when it is
// enqueued, before anything is written. What one of them takes goes to that
// one.
func ExampleCheck() {
	box, err := outbox.New(nil, outbox.Config{Routes: []dispatch.Route{{
		Name: "mail", Providers: []string{"resend", "postmark"}, Policy: dispatch.EmailPolicy(),
		Checks: dispatch.Checks{"resend": resend.Check, "postmark": postmark.Check},
	}}})
	if err != nil {
		panic(err)
	}
	m := dispatch.Email{
		To: []dispatch.Address{{Email: "ada@example.com"}}, Subject: "Your order", Text: "It is on its way.",
		Tags: []string{"orders", "no tag for resend!"},
	}
	_, err = box.Enqueue(context.Background(), nil, dispatch.Intent{Key: dispatch.NewKey(), Content: m})
	fmt.Println(err)
	// Output:
	// Content.Tags[1] has a character other than letters, digits, _ and - (resend); Content.Tags has more than one tag, which this provider can't carry (postmark)
}
