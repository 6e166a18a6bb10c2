package main

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/render"
)

// tables are the application's own: who answers which category, with which
// words. Staff edit both while messages are on their way.
const tables = `
create table contactform.template (name text primary key, subject text not null, body text not null);
create table contactform.category (
	name text primary key,
	queue text not null, -- a route of the outbox
	template text not null references contactform.template
);
create table contactform.inquiry (id text primary key, category text not null references contactform.category, email text not null, text text not null);
insert into contactform.template values
	('quote', 'Your inquiry {{.ID}}', 'Dear customer, a quote for "{{.Text}}" follows within two days.');
insert into contactform.category values ('Prices', 'sales', 'quote');
`

// inquiry is what somebody wrote into the form.
type inquiry struct{ ID, Category, Email, Text string }

// desk answers inquiries.
type desk struct {
	pool *pgxpool.Pool
	box  *outbox.Box
	ids  dispatch.Namespace
}

// submit stores the inquiry and enqueues its confirmation, or does neither.
// Queue and words are looked up in the same transaction and frozen with the
// message. A form that is submitted twice is confirmed once.
func (d *desk) submit(ctx context.Context, q inquiry) (dispatch.Key, error) {
	key := d.ids.Key("inquiry/" + q.ID + "/confirmation")
	return key, d.box.InTx(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "insert into contactform.inquiry values ($1, $2, $3, $4) on conflict do nothing", q.ID, q.Category, q.Email, q.Text)
		if err != nil {
			return err
		}
		i, err := d.confirmation(ctx, tx, key, q)
		if err != nil {
			return err
		}
		_, err = d.box.Enqueue(ctx, tx, i)
		return err
	})
}

// confirmation renders the message with what the tables say now.
func (d *desk) confirmation(ctx context.Context, tx pgx.Tx, key dispatch.Key, q inquiry) (dispatch.Intent, error) {
	i := dispatch.Intent{Key: key, Content: dispatch.Email{To: []dispatch.Address{{Email: q.Email}}}}
	var source render.Source
	err := tx.QueryRow(ctx, `select c.queue, t.name, t.subject, t.body from contactform.category c
		join contactform.template t on t.name = c.template where c.name = $1`, q.Category).
		Scan(&i.Route, &source.Name, &source.Subject, &source.Text)
	if err != nil {
		return i, err
	}
	t, err := render.Parse(source)
	if err != nil {
		return i, err
	}
	return t.Intent(i, q)
}

// correct puts a new confirmation in the place of one that has not been sent,
// with the words and the queue of today. It tells what became of the old one:
// anything but Cancelled means that the customer may see both.
func (d *desk) correct(ctx context.Context, id string, old dispatch.Key, a outbox.Audit) (key dispatch.Key, was dispatch.State, err error) {
	key = dispatch.NewKey()
	err = d.box.InTx(ctx, func(tx pgx.Tx) error {
		q := inquiry{ID: id}
		err := tx.QueryRow(ctx, "select category, email, text from contactform.inquiry where id = $1", id).Scan(&q.Category, &q.Email, &q.Text)
		if err != nil {
			return err
		}
		i, err := d.confirmation(ctx, tx, key, q)
		if err != nil {
			return err
		}
		was, err = d.box.Supersede(ctx, tx, old, i, a)
		return err
	})
	return key, was, err
}
