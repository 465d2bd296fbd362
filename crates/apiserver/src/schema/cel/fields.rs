//! A rule may only name fields that its schema has. (The reference implementation checks all types; this
//! checks what can be told without a type system: field names along paths from `self`.)

use std::collections::HashMap;

use kube_cel::cel::common::ast::{EntryExpr, Expr, IdedExpr};

use super::super::Schema;
use super::super::node::{Additional, Arena, Node, NodeId, Type};
use super::Expression;
use super::convert::{escape, reserved};

impl Expression {
    /// The first field that the schema does not have. `root` is true for the schema of whole objects.
    pub(crate) fn undefined_field(&self, schema: &Schema, root: bool) -> Option<String> {
        let walk = Walk {
            arena: &schema.arena,
            root: root.then_some(schema.root),
        };
        let scope = HashMap::from([("self".to_owned(), Some(schema.root))]);
        walk.type_of(self.ast(), &scope).err()
    }
}

type Scope = HashMap<String, Option<NodeId>>;

struct Walk<'a> {
    arena: &'a Arena,
    root: Option<NodeId>,
}

impl Walk<'_> {
    /// The place in the schema that an expression leads to, if it is one.
    fn type_of(&self, expression: &IdedExpr, scope: &Scope) -> Result<Option<NodeId>, String> {
        match &expression.expr {
            Expr::Ident(name) => Ok(scope.get(name).copied().flatten()),
            Expr::Select(select) => {
                let Some(id) = self.type_of(&select.operand, scope)? else {
                    return Ok(None);
                };
                self.field(id, &select.field)
            }
            Expr::Call(call) => {
                let target = call
                    .target
                    .as_deref()
                    .map(|t| self.type_of(t, scope))
                    .transpose()?
                    .flatten();
                let mut arguments = Vec::new();
                for argument in &call.args {
                    arguments.push(self.type_of(argument, scope)?);
                }
                let list = target.or(arguments.first().copied().flatten());
                Ok(list
                    .filter(|_| call.func_name == "_[_]")
                    .and_then(|id| self.arena.get(id).items))
            }
            Expr::Comprehension(all) => {
                let range = self.type_of(&all.iter_range, scope)?;
                let mut inner = scope.clone();
                inner.insert(
                    all.iter_var.clone(),
                    range.and_then(|id| self.arena.get(id).items),
                );
                inner.extend(all.iter_var2.clone().map(|name| (name, None)));
                inner.insert(all.accu_var.clone(), None);
                for part in [&all.accu_init, &all.loop_cond, &all.loop_step, &all.result] {
                    self.type_of(part, &inner)?;
                }
                Ok(None)
            }
            Expr::List(list) => {
                for element in &list.elements {
                    self.type_of(element, scope)?;
                }
                Ok(None)
            }
            Expr::Map(map) => {
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        self.type_of(&entry.key, scope)?;
                        self.type_of(&entry.value, scope)?;
                    }
                }
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    fn field(&self, id: NodeId, name: &str) -> Result<Option<NodeId>, String> {
        let node: &Node = self.arena.get(id);
        if let Additional::Schema(id) = node.additional {
            return Ok(Some(id));
        }
        let meta = self.root == Some(id) || node.embedded_resource;
        if node.ty != Type::Object || (meta && matches!(name, "apiVersion" | "kind" | "metadata")) {
            return Ok(None);
        }
        let found = node.properties.iter().find(|(property, _)| {
            // A reserved word may be selected as it is, too.
            escape(property).as_deref() == Some(name) || (reserved(property) && property.as_ref() == name)
        });
        match found {
            Some((_, id)) => Ok(Some(*id)),
            None => Err(format!("undefined field '{name}'")),
        }
    }
}
