package ses

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/seed-8098fbb7/dispatch/provider/exchange"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailapi"
)

// Config is one account in one region. Region and Credentials are required.
// Fields that are zero mean what stands with them.
type Config struct {
	// Name is the provider's stable name, as routes use it; empty means "ses".
	Name string
	// Account identifies the account; empty means Name. Change it with the
	// account or the region, not with its credentials.
	Account string
	// Region is where SES sends from, "eu-west-1".
	Region string
	// Credentials sign the requests; they need the right to ses:SendEmail. They
	// are asked for when there are none that are valid, and kept.
	Credentials aws.CredentialsProvider `json:"-"`
	// ConfigurationSet is the set whose events come back. Without it, and
	// without Topics, nothing settles an unknown mail.
	ConfigurationSet string
	// Topics are the ARNs of the SNS topics whose events are ours. A good
	// signature of SNS isn't enough: anybody can subscribe our URL to a topic
	// of his own. Without any, Webhook refuses every call.
	Topics []string
	// From is the sender of mails whose route names none, a verified identity:
	// "Shop <no-reply@shop.example>".
	From string
	// Metadata are the names of an intent's metadata that go out as tags, with
	// values of letters, digits, "_" and "-". Our key goes out as dispatch_key
	// in any case.
	Metadata []string
	// Grace is how long an unknown mail waits for its first event: 1 h. SES
	// doesn't document it; "Send" comes within seconds, and SNS retries for up
	// to an hour.
	Grace time.Duration
	// BaseURL is "https://email.<region>.amazonaws.com".
	BaseURL string
	// Exchange bounds the HTTP exchange, with SES and with SNS; Write is 30 s,
	// MaxBody 256 KiB. The roots of its TLS, where set, are also those that
	// SNS's signing certificate must come from.
	Exchange exchange.Config `json:"-"`
}

// String shows name and account.
func (c Config) String() string { return "ses " + c.Name + "/" + c.Account }

// Format prints what String does, with every verb: no secret slips into a log.
func (c Config) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// LogValue shows what String does, in fields.
func (c Config) LogValue() slog.Value {
	return slog.GroupValue(slog.String("name", c.Name), slog.String("account", c.Account))
}

var (
	regionForm = regexp.MustCompile(`^[a-z]{2}(-[a-z]+){1,3}-[0-9]{1,2}$`)
	topicForm  = regexp.MustCompile(`^arn:aws(-[a-z]+)*:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_.-]{1,256}$`)
)

func (c Config) checked() (Config, error) {
	if !regionForm.MatchString(c.Region) {
		return c, errors.New(`ses: Region is none: want "eu-west-1"`)
	}
	host := "https://email." + c.Region + ".amazonaws.com"
	if c.Region[:3] == "cn-" {
		host += ".cn"
	}
	if err := (mailapi.Basics{
		Vendor: "ses", Name: &c.Name, Account: &c.Account, BaseURL: &c.BaseURL, From: c.From, Labels: c.Metadata,
	}).Check(host); err != nil {
		return c, err
	}
	if c.Grace == 0 {
		c.Grace = time.Hour
	}
	switch {
	case c.Credentials == nil:
		return c, errors.New("ses: Credentials are missing")
	case c.Grace < 0:
		return c, errors.New("ses: Grace is negative")
	case len(c.ConfigurationSet) > 64 || !mailapi.Plain(c.ConfigurationSet, "_-"):
		return c, errors.New("ses: ConfigurationSet is longer than 64 characters or has one other than letters, digits, _ and -")
	}
	for n, topic := range c.Topics {
		if !topicForm.MatchString(topic) {
			return c, fmt.Errorf("ses: Topics[%d] is no ARN of an SNS topic", n)
		}
	}
	return c, nil
}
