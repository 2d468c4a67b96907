# Active Record, the models of Rails.  To be run by clients.pl.

require 'active_record'
require 'json'
require 'stringio'

BIG = 2**53 + 1
$count = 0

def ok(condition, name)
  puts "#{condition ? 'ok' : 'not ok'} #{$count += 1} - #{name}"
end

# Equal, and of the same type.
def is(got, expected, name)
  ok(got.eql?(expected), name)
  puts "# got: #{got.inspect}", "# expected: #{expected.inspect}" unless got.eql?(expected)
end

# The block must fail with this error of the server.
def fails(error, name)
  is(yield, error, name)
rescue ActiveRecord::StatementInvalid => e
  is(e.cause.class, error, name)
end

ActiveRecord::Base.establish_connection(
  adapter: 'postgresql', host: ENV['PGHOST'], port: ENV['PGPORT'], username: ENV['PGUSER'], database: ENV['PGDATABASE'])
ActiveRecord::Schema.verbose = false
ActiveRecord::Schema.define do
  create_table :orders, id: :snowflake, default: -> { 'snowflake_next()' } do |t|
    t.text :item
  end
  create_table :lines, id: :bigint, default: -> { 'snowflake_next()' } do |t|
    t.references :order, type: :bigint, foreign_key: true
  end
end

class ApplicationRecord < ActiveRecord::Base
  self.abstract_class = true
end

class Order < ApplicationRecord
  attribute :id, :big_integer
  has_many :lines
end

class Line < ActiveRecord::Base
  belongs_to :order
end

class OrderView < ApplicationRecord
  self.table_name = 'orders_view'
  attribute :id, :big_integer
end

# a model that knows nothing of the type
class Plain < ActiveRecord::Base
  self.table_name = 'orders'
end

puts "# client: Active Record #{ActiveRecord.version}, Ruby #{RUBY_VERSION}"
$stderr = StringIO.new
order = Order.create!(item: 'default')
ok($stderr.string.include?('failed to recognize type'), 'a warning of a type that it does not know')
$stderr = STDERR
is(order.id.class, Integer, 'create! mints an ID and reads it as an Integer')
several = Order.insert_all([{ item: 'bulk' }, { item: 'bulk' }]).rows.flatten.map(&:to_i)
ok(order.id < several[0] && several[0] < several[1], 'insert_all mints an ID for each row')
is(Order.find(order.id).item, 'default', 'find by an Integer')
is(Order.find(order.id.to_s).item, 'default', 'find by a String')
is(Order.where(id: [*1..999, order.id]).count, 1, 'filter by a list')
is(Order.where('id IN (?)', [*1..999, order.id]).count, 1, 'filter by a list in SQL')
is(Order.where('id < ?', several[1]).order(id: :desc).limit(1).pluck(:id), [several[0]], 'the next page, by key')
is(Order.in_batches(of: 2).map(&:size), [2, 1], 'in_batches walks the key')
is(Order.maximum(:id), several[1], 'maximum')
is(Order.create!(id: BIG, item: 'explicit').reload.id, BIG, 'insert an Integer beyond 2^53')
order.update!(item: 'changed')
is(Order.find(order.id).item, 'changed', 'update!')

hour_ago = 1.hour.ago
is(Order.where('@@ id >= ?', 1.hour.ago).count, 3, 'filter by a time')
is(Order.where('id >= snowflake_lower_bound(?)', hour_ago).count, 3, 'filter by a time, by a function')
fails(PG::InvalidTextRepresentation, 'a time without a cast is refused') { Order.where('id >= ?', hour_ago).count }

line = Line.create!(order: order)
is(line.id.class, Integer, 'a bigint key is an Integer')
is(Line.joins(:order).where(orders: { item: 'changed' }).pluck(:id), [line.id], 'a foreign key, with a join')
is(Line.includes(:order).first.order, order, 'a foreign key, preloaded')
is(order.lines.to_a, [line], 'the way back')

is(JSON.parse(order.to_json)['id'], order.id, 'to_json writes a number')
is(Order.pluck(Arel.sql('to_json(id)')).map(&:class).uniq, [String], 'JSON of the server has a string')

# the form of all sections: rows of 2010 and of 2045 are there, then come one of now and 1,000
OLD = BIG
FAR = 2**62 + 1
from, to = 1.hour.ago, 1.hour.from_now
Line.delete_all
Order.delete_all
ActiveRecord::Base.connection.execute('CREATE VIEW orders_view AS SELECT id, item, @@ id AS created_at FROM orders')
Order.insert_all([{ id: OLD, item: 'old' }, { id: FAR, item: 'far' }])
rows = Array.new(1000) { |number| { item: "item #{number}" } }

id = Order.create!(item: 'tea').id
batch = Order.insert_all(rows, returning: :id).rows.flatten.map(&:to_i)
some = Order.where(id: [id, batch[0]])
newest = Order.order(id: :desc).limit(20)
following = Order.where(id: ...newest.last.id).order(id: :desc).limit(20)
period = OrderView.where(created_at: from...to)
minted = [id, *batch]
is(Order.find(id).id, id, 'insert, and read back exactly')
is([minted.map(&:class).uniq, minted.uniq.size, batch], [[Integer], 1001, batch.sort],
   'a batch of 1,000, whose keys are Integers and ascend')
is(some.map(&:id).sort, minted.first(2), 'a list of keys')
is(newest.map(&:id), [FAR, *minted.reverse.first(19)], 'newest first')
is(following.map(&:id), minted.reverse[19, 20], 'the next page')
is(period.map(&:id).sort, minted, 'rows of a period, by times')
ok(period.first.created_at.between?(from, to), 'the time of the view is a time')
Order.where.not(id: id).delete_all

# without the attribute
plain = Plain.create!(item: 'plain')
is(plain.id.class, String, 'without the attribute, a String')
is(Plain.find(plain.id).item, 'plain', 'which finds its row')

# the dump of the schema
dump = StringIO.new
ActiveRecord::SchemaDumper.dump(ActiveRecord::Base.connection_pool, dump)
ok(dump.string.include?("Unknown type 'snowflake' for column 'id'"), 'schema.rb cannot have the type')
ok(dump.string.include?('create_table "lines", id: :bigint, default: -> { "snowflake_next()" }'),
   'it can have the default of a bigint key')
puts "1..#{$count}"
